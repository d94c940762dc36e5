"""Installs the packages of a job, a model or an application before its run starts: once for each environment, in a run
of its own.

The runner is the lock: each process that needs an environment starts or polls the run of its name, and a run of one
name exists once. It is isolated as the run that needs it, with its user, CPU, memory and network policy, so nothing
that a package's set-up executes can do more than that. Its end is recorded in the environment's folder, then it is
forgotten; every step may be repeated by several callers.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.db.models import Case, F, When
from django.db.models.functions import Coalesce
from django.utils import timezone

import runners
from accounts.models import State as UserState
from accounts.models import User
from jobs.models import Job, State
from jobs.models.submission import NOTEBOOK
from kernel import healing, storage
from kernel.errors import Refused
from kernel.messages import Message
from resources.models import Network
from runners import Mount, RunSpec, RunStatus, owned
from snapshots import tree

from . import cache, explaining, silence, store, text, trust, using
from .store import Environment
from .using import ENVIRONMENT

log = logging.getLogger(__name__)

PREFIX = "pkg-"
PROGRAM = Path(__file__).with_name("program")
INSTALLER, WHEELS, WORKSPACE, HOME = "/opt/mlp-install", "/opt/wheels", "/workspace", "/home.now"
LOG_LIMIT = 16 << 20
LOG_READ = 400  # lines of the installer's output that say why it has failed
KEPT_S = 86400  # how long what is left of a failed installation is kept: its log
OWNER = Coalesce("environment_version__user", "user")  # in whose folder the environment of a model is
OWNER_OF_JOB = Case(When(entry__endswith=NOTEBOOK, then=F("user")), default=OWNER)  # as Submission.packages_owner
GONE = Message("its packages are not there any more, and neither is the code that named them")
NO_NETWORK = Message("its packages come from an index, which its network policy does not allow")


class Failed(Exception):
    """The packages cannot be installed; `reason` says why."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class Need:
    """Packages that a user's run needs, and what the run that installs them may use: `cpu` in cores, `ram` in MiB.

    `wanted` are lines without inclusions. An installation that failed before `since`, a Unix time, is tried again.
    What other users have as well, `is_shared`, is installed without the cache, which earlier installations of the user
    have written, and has no file in common with it, which later ones write.
    """

    user: User
    wanted: str
    runtime: str
    cpu: float
    ram: int
    network: str
    since: float
    image: str = ""
    is_shared: bool = False

    @property
    def environment(self) -> Environment:
        return store.environment_of(self.user.pk, self.wanted, self.runtime, self.image)


def ensure_for_job(job: Job, named: str = "") -> Environment | None:
    """Return the job's environment, None while it is being installed; `named` are the lines of its named environment.

    Raises Failed; RunnerError, OSError.
    """
    since = job.not_before.timestamp()
    lines = [(named or resolve(job)).rstrip("\n"), *(settings.NOTEBOOK_PACKAGES if job.is_notebook else ())]
    wanted = "".join(f"{line}\n" for line in lines if line)
    need = Need(job.user, wanted, job.runtime, job.cpu, job.ram, job.network_policy, since, job.image)
    note_packages(job, need.environment.digest)
    return ensure(need)


def note_packages(job: Job, digest: str) -> None:
    """Record which environment a job needs, before its installation starts: `sweep` knows by it who waits."""
    if job.packages != digest:
        job.packages = digest
        Job.objects.filter(pk=job.pk).update(packages=digest)


def ensure(need: Need) -> Environment | None:
    """Return the environment, None while it is being installed. Raises Failed; RunnerError, OSError.

    The caller records beforehand that the environment is needed, so that `using.in_use` includes it; an installation
    that nothing needs is stopped.
    """
    environment = need.environment
    if environment.is_ready:
        environment.touch()
        return environment
    failed = environment.failure()
    if failed and failed[1] >= need.since:
        raise Failed(failed[0])
    environment.forget_failure()
    _go_on(environment, need)
    return environment if environment.is_ready else None


def resolve(job: Job) -> str:
    """Return the job's requirements with the files that they name, of the code that it runs. Raises Failed."""
    home = storage.home_dir(job.user.username)
    place = runners.get().place(home, HOME)
    code = tree.ensure(job.user.username, job.snapshot, place) if job.snapshot else home

    def read(path: str) -> str:
        handle = storage.open_file(code, path)
        if handle is None:
            raise Refused("%(path)s is not in the code of the job", field=text.FIELD, path=path)
        with handle:
            return text.decoded(handle.read(text.MAX_CHARS))

    try:
        return text.resolved(job.requirements, os.path.dirname(job.entry), read)
    except Refused as refused:
        raise Failed(refused.msg) from refused


def _go_on(environment: Environment, need: Need) -> None:
    """Start the installation, or look at it. Raises Failed once it has failed."""
    runner = runners.get()
    status = runner.poll(environment.run_name)
    if status.state == "unknown":
        if need.network != Network.OPEN and urlsplit(settings.PIP_INDEX_URL).scheme != "file":
            raise Failed(NO_NETWORK)
        runner.start(_spec(environment, need))
    elif status.state == "running":
        if status.started and time.time() - status.started > settings.PACKAGES_TIMEOUT_S:
            runner.stop(environment.run_name, 5)
    else:
        settle(environment, status)
        if failed := environment.failure():
            raise Failed(failed[0])


def settle(environment: Environment, status: RunStatus) -> None:
    """Record the end of an installation and forget its run. One that was stopped or lost leaves no trace, nor does one
    whose environment was removed meanwhile.
    """
    cache.take_back(environment, environment.base())
    if not environment.is_begun:
        pass
    elif status.succeeded:
        _publish(environment)
    elif status.state == "exited" and not status.reason.startswith(runners.base.STOPPED):
        why = explaining.culprit(runners.tail(environment.log, LOG_READ))[1]
        words = Message("its packages could not be installed: %(end)s", end=why or status.reason)
        environment.note_failure(owned.with_log(words, environment.log))
    elif status.ended and status.started and status.ended - status.started >= settings.PACKAGES_TIMEOUT_S:
        words = Message("the installation of its packages took longer than %(seconds)s s",
                        seconds=settings.PACKAGES_TIMEOUT_S)  # fmt: skip
        environment.note_failure(owned.with_log(words, environment.log))
    if not environment.is_ready:
        storage.remove_tree(environment.work)
    runners.get().forget(environment.run_name)


def _publish(environment: Environment) -> None:
    try:
        environment.require_tree()
    except Refused as refused:
        return environment.note_failure(Message("its packages could not be installed: %(end)s", end=refused.problem))
    mib = 1 + (sum(info.st_size for _path, info in storage.files(environment.tree)) >> 20)
    if mib > settings.PACKAGES_MIB:
        words = Message(
            "its packages need %(mib)s MiB, at most %(most)s are allowed", mib=mib, most=settings.PACKAGES_MIB
        )
        environment.note_failure(words)
    else:
        environment.publish(mib)


def _spec(environment: Environment, need: Need) -> RunSpec:
    runner = runners.get()
    environment.tree.mkdir(parents=True, exist_ok=True)
    environment.log.unlink(missing_ok=True)
    environment.note_base(need.runtime, need.image, need.wanted)
    storage.write_atomic(environment.work / store.TEXT, need.wanted.encode())
    if not need.is_shared:
        cache.lend(environment, environment.base())
    mounts = [Mount(PROGRAM, INSTALLER), Mount(environment.tree, ENVIRONMENT, read_only=False), *trust.mounts()]
    work = runner.place(environment.work, WORKSPACE)
    tree = runner.place(environment.tree, ENVIRONMENT)
    variables = {
        **runner.environment(work),
        "PYTHONUNBUFFERED": "1",
        "PIP_CACHE_DIR": f"{tree}/{cache.NAME}",
        "UV_CACHE_DIR": f"{tree}/{cache.NAME}/uv",
        "UV_LINK_MODE": "copy" if need.is_shared else "hardlink",
    }
    variables |= trust.variables(runner, trust.VARIABLES + trust.OF_PIP)
    parts = urlsplit(settings.PIP_INDEX_URL)
    if parts.scheme == "file":
        wheels = Path(unquote(parts.path))
        mounts.append(Mount(wheels, WHEELS))
        variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": runner.place(wheels, WHEELS)}
    else:
        variables |= _index()
    return RunSpec(
        name=environment.run_name,
        command=[
            runner.python, "-I", f"{runner.place(PROGRAM, INSTALLER)}/install.py",
            tree, f"{work}/{store.TEXT}",
        ],
        cwd=environment.work,
        environment=variables,
        log=environment.log,
        log_limit=LOG_LIMIT,
        cpu=need.cpu,
        ram_mib=need.ram,
        labels={"user": need.user.username, "packages": environment.digest},
        runtime=need.runtime,
        image=need.image,
        mounts=tuple(mounts),
        owner=need.user.pk,
        disk_mib=settings.PACKAGES_MIB,
        network=need.network,
    )  # fmt: skip


def _index() -> dict[str, str]:
    """Return the variables that tell pip where the indexes are, and how long it waits for them; `with_uv.py` has uv do
    the same.
    """
    further = " ".join(settings.PIP_EXTRA_INDEX_URL)
    given = {"PIP_INDEX_URL": settings.PIP_INDEX_URL, "PIP_EXTRA_INDEX_URL": further, "PIP_PROXY": settings.PIP_PROXY}
    tries = {"PIP_DEFAULT_TIMEOUT": str(settings.PIP_TIMEOUT_S), "PIP_RETRIES": str(silence.TRIES - 1)}
    return {name: value for name, value in given.items() if value} | tries


# --- in each round of reconcile --------------------------------------------------------------------------------------
def sweep() -> None:
    """Stop installations that nobody waits for, and record the ends of those that nobody looked at."""
    names = [name for name in runners.get().names() if name.startswith(PREFIX)]
    if not names:
        return
    waiting = Job.objects.filter(state__in=(State.CREATING, State.RUNNING), run_started=False, reserved=True)
    keys = set(waiting.values_list(OWNER_OF_JOB, "packages")) | using.in_use()
    needed = {f"{PREFIX}{number}-{digest}" for number, digest in keys}
    for name in names:
        if name not in needed:
            healing.attempt(_discard, name)


def _discard(name: str) -> None:
    number, _, digest = name.removeprefix(PREFIX).partition("-")
    status = runners.get().poll(name)
    if status.state == "running":
        runners.get().stop(name, 2)
    elif status.state == "unknown":
        runners.get().forget(name)
    else:
        settle(Environment(int(number), digest), status)


def evict() -> None:
    """Remove environments that were not used for long, that a user has no room for, or whose user is gone."""
    live = Job.objects.filter(state__in=(State.CREATING, State.RUNNING)).exclude(packages="")
    needed = set(live.values_list(OWNER_OF_JOB, "packages")) | using.in_use()
    active = set(User.objects.filter(state=UserState.ACTIVED).values_list("pk", flat=True))
    oldest = (timezone.now() - timedelta(days=settings.PACKAGES_DAYS)).timestamp()
    healing.attempt(cache.evict, active)
    for environment in store.incomplete(time.time() - KEPT_S):
        if (environment.number, environment.digest) not in needed:
            healing.attempt(environment.remove)
    sums: dict[int, int] = {}
    for environment, used, mib in sorted(store.everything(), key=lambda entry: -entry[1]):
        if (environment.number, environment.digest) in needed:
            sums[environment.number] = sums.get(environment.number, 0) + mib
            continue
        room = settings.PACKAGES_USER_MIB - sums.get(environment.number, 0)
        if environment.number not in active or used < oldest or (mib > room and time.time() - used > store.UNUSED_S):
            healing.attempt(environment.remove)
        else:
            sums[environment.number] = sums.get(environment.number, 0) + mib
