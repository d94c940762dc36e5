"""The packages that a model is loaded with: those of the job that has trained it, else what requirements.txt beside it
names. Its check and the applications that serve it run in an environment that has them (jobs.packages).

A model remembers its environment. While that is there, and this platform's Python is as it was, it is used as it is;
else it is installed again from lines that name the versions.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from django.db.models import Q
from packaging.markers import UndefinedComparison
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from jobs.models import EnvironmentVersion, Job
from jobs.packages import building, finding, text
from jobs.packages.building import OWNER, Failed, Need
from jobs.packages.named import locating
from jobs.packages.named.used import NamedUse
from jobs.packages.store import Environment
from jobs.packages.using import Use
from kernel import storage
from kernel.errors import Refused
from resources.models import Tenant
from runners import interpreter

from .choosing import MODULES
from .models import Model, State

RUNTIME = "serve"
MLMODEL, MLMODEL_BYTES = "MLmodel", 1 << 20
SERVING = ("creating", "ready")  # states of applications
LOADER = re.compile(r"\bloader_module[\"']?\s*:\s*[\"']?([\w.]+)")  # in the YAML of an MLmodel file
NOT_NEEDED = {"mlflow", "mlflow-skinny", "mlflow-tracing"}  # mlmodel.py loads its format without them


def of_job(job: Job | None) -> tuple[str, str]:
    """Return the requirements and the environment's digest of what a job has trained; ("", "") without packages."""
    if job is None or not job.packages or not (job.requirements or job.environment_version_id):
        return "", ""
    if job.environment_version_id:
        return locating.lines_of(job.environment_version), job.packages
    environment = Environment(job.user_id, job.packages)
    installed = environment.installed() if environment.is_ready else None
    if installed == []:  # the platform had all of them
        return "", ""
    try:
        wanted = building.resolve(job)
    except (Failed, OSError):  # its code is gone; the environment may still be there
        wanted = ""
    return text.pinned(wanted, installed) if installed else wanted, job.packages


def of_files(folder: Path, paths: Iterable[str]) -> str:
    """Return the requirements that come with a model's files, "" where the platform's packages suffice.

    MLflow writes down all that was installed when a model was logged: its file counts where a package is missing here.
    Any other says what its author wants, versions included, as does that of a model that MLflow itself has to load.
    Raises Refused for what is no requirement.
    """
    files = set(paths)
    described = min((path for path in files if posixpath.basename(path) == MLMODEL), key=len, default=None)
    place = posixpath.dirname(described or "")
    path = posixpath.join(place, finding.FILE)
    if path not in files:
        return ""
    of_mlflow = described is not None and not _needs_mlflow(_read(folder, described, MLMODEL_BYTES))
    lines = [line for line in text.joined(_read(folder, path)) if not _is_left_out(line, of_mlflow)]
    if not any(_is_missing(line, of_mlflow) for line in lines):
        return ""
    try:
        return text.resolved("\n".join(lines), place, lambda name: _included(folder, name, files))
    except Refused as refused:
        raise Refused("%(file)s: %(problem)s", field="src", file=path, problem=refused.problem) from refused


def of_lines(lines: str) -> str:
    """Return requirements that were given with a model, one a line. Raises Refused for what is none, and for files."""
    if any(map(text.INCLUDE.fullmatch, text.lines(lines))):
        raise Refused("-r is not accepted here; write the lines of the file", field=text.FIELD)
    return text.resolved(lines, "", lambda path: "")


def is_needed(model: Model) -> bool:
    """Return whether the model is loaded with packages beside the platform's."""
    return bool(model.requirements or model.packages or model.environment_version_id)


def ensure(model: Model, note, *, cpu: float, ram: int, tenant: Tenant, since: datetime | None) -> Path | None:
    """Return the folder of the model's environment, None while it is being installed.

    `note(digest)` records the environment with the model before an installation starts; `cpu` in cores, `ram` in MiB
    and the tenant's network are what that may use. A failure before `since` is tried again. Raises building.Failed;
    RunnerError, OSError.
    """
    moment = since.timestamp() if since else 0.0
    if (version := model.environment_version) is not None:
        note(locating.environment_for(version, RUNTIME).digest)
        policy = tenant.network_policy
        ready = locating.ensure(version, RUNTIME, cpu=cpu, ram=ram, network=policy, since=moment)
        return ready.tree if ready else None
    environment = _of(model)
    if model.packages and environment.builds_on(RUNTIME):
        environment.touch()
        return environment.tree
    if not model.requirements:
        raise Failed(str(building.GONE))
    need = Need(model.user, model.requirements, RUNTIME, cpu, ram, tenant.network_policy, moment)
    if model.packages != need.environment.digest:
        note(need.environment.digest)
    ready = building.ensure(need)
    return ready.tree if ready else None


def pinned(model: Model) -> str:
    """Return the model's requirements in the versions that its environment has."""
    installed = _of(model).installed() if model.packages else []
    return text.pinned(model.requirements, installed) if installed else model.requirements


def tree_of(model: Model) -> Path | None:
    """Return the folder of the environment that `ensure` has returned; None for a model that needs none."""
    return _of(model).tree if model.packages else None


def _of(model: Model) -> Environment:
    """Return the model's environment; that of a named one is in the folder of who has made it."""
    version = model.environment_version
    return Environment(version.user_id if version else model.user_id, model.packages)


def in_use() -> set[tuple[int, str]]:
    """Return the environments of models that are being checked, that an application serves, or that one moves to."""
    moving = Q(served_by__state__in=SERVING) | Q(rollouts__app__state__in=SERVING)
    needed = Q(state=State.CREATING) | moving
    return set(Model.objects.filter(needed).exclude(packages="").values_list(OWNER, "packages"))


def uses(number: int) -> list[Use]:
    """Return the models that have an environment of that user, and the applications that serve or move to them."""
    rows = Model.kept.filter(user=number, environment_version=None).exclude(packages="")
    models = rows.order_by("-pk").values_list("packages", "name", "state")
    served = rows.filter(served_by__isnull=False, served_by__trashed=None)
    served = served.values_list("packages", "served_by__name", "served_by__state")
    moving = rows.filter(rollouts__isnull=False, rollouts__app__trashed=None)
    moving = moving.values_list("packages", "rollouts__app__name", "rollouts__app__state")
    apps = dict.fromkeys([*served, *moving])
    return [
        *(Use(digest, "application", name, state in SERVING) for digest, name, state in apps),
        *(Use(digest, "model", name, state == State.CREATING) for digest, name, state in models),
    ]


def named_uses(version: EnvironmentVersion) -> list[NamedUse]:
    """Return the models that name a version: each needs it as long as it is there."""
    rows = Model.objects.filter(environment_version=version).exclude(state=State.DELETING).order_by("-pk")
    return [NamedUse("model", user, name, True) for user, name in rows.values_list("user__username", "name")]


def _read(folder: Path, path: str, most: int = text.MAX_CHARS) -> str:
    file = storage.open_file(folder, path)
    if file is None:
        return ""
    with file:
        return text.decoded(file.read(most))


def _included(folder: Path, path: str, files: set[str]) -> str:
    if path not in files:
        raise Refused("%(path)s is not among the files of the model", field="src", path=path)
    return _read(folder, path)


def _needs_mlflow(mlmodel: str) -> bool:
    """Return whether a model is loaded by the mlflow package, not by mlmodel.py."""
    return any(loader not in MODULES for loader in LOADER.findall(mlmodel))


def _is_left_out(line: str, of_mlflow: bool) -> bool:
    """Return whether a line only bounds others, or is of MLflow itself."""
    words = line.split()
    if words and words[0] in ("-c", "--constraint"):
        return True
    requirement = _parsed(line)
    return of_mlflow and requirement is not None and canonicalize_name(requirement.name) in NOT_NEEDED


def _is_missing(line: str, of_mlflow: bool) -> bool:
    """Return whether a line asks for what the Python of runs does not have. Of MLflow's only packages count, neither
    versions nor options: its models were loaded without them before.
    """
    requirement = _parsed(line)
    if requirement is None:
        return not of_mlflow
    if not _holds(requirement):
        return False
    version = interpreter.of_runs().version_of(requirement.name)
    if version is None:
        return True
    return not of_mlflow and (bool(requirement.url) or not requirement.specifier.contains(version, prereleases=True))


def _holds(requirement: Requirement) -> bool:
    try:
        return requirement.marker is None or requirement.marker.evaluate(interpreter.of_runs().marks)
    except UndefinedComparison:  # pip says what is wrong with it
        return True


def _parsed(line: str) -> Requirement | None:
    try:
        return Requirement(line.partition(" --hash=")[0])
    except InvalidRequirement:
        return None
