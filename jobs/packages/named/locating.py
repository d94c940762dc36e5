"""Where the files of a version are, and their installation when they are needed: shared by all who name it.

A version is installed once, by a run of who has made it. Its files may be removed like those of any environment; they
are installed again from `pins`, so in the same versions.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from jobs.models import EnvironmentVersion, Job, State, VersionState
from jobs.packages import building, store, text
from jobs.packages.building import Failed, Need
from jobs.packages.store import Environment
from kernel.messages import Message

USED_EVERY = timedelta(minutes=1)
LIVE_JOBS = (State.CREATING, State.RUNNING)


def lines_of(version: EnvironmentVersion) -> str:
    """Return what is installed of a version: its pins, or before it was ready its requirements.

    The comment gives each version lines of its own: those without versions mean what is newest then.
    """
    return version.pins or wanted_of(version)


def wanted_of(version: EnvironmentVersion) -> str:
    """Return what the installation of a version is asked for.

    By the comment it is never an environment of a job of its author, which shares files with the author's cache.
    """
    return f"# {version.reference}\n{version.pins or version.requirements}"


def environment_for(version: EnvironmentVersion, runtime: str, image: str = "") -> Environment:
    """Return the environment that runs of the runtime or image use for a version, whether or not it is on the disk."""
    built = Environment(version.user_id, version.packages)
    if version.packages and built.builds_on(runtime, image):
        return built
    return store.environment_of(version.user_id, wanted_of(version), runtime, image)


def ensure(
    version: EnvironmentVersion, runtime: str, *, cpu: float, ram: int, network: str, since: float, image: str = "",
) -> Environment | None:  # fmt: skip
    """Return the environment of a version, None while it is being installed. The arguments are those of Need.

    Raises Failed; RunnerError, OSError.
    """
    need = Need(version.user, wanted_of(version), runtime, cpu, ram, network, since, image, is_shared=True)
    ready = environment_for(version, runtime, image)
    if ready.is_ready:
        ready.touch()
    else:
        ready = building.ensure(need)
    if ready is not None:
        _note_use(version)
    return ready


def ensure_for_job(job: Job) -> Environment | None:
    """Return the job's environment, None while it is being installed. Raises Failed; RunnerError, OSError."""
    if not job.environment:
        return building.ensure_for_job(job)
    version = job.environment_version
    if version is None:
        raise Failed(Message("the environment %(name)s was deleted", name=job.environment))
    if job.is_notebook:  # which needs a kernel beside it: an environment of the job's user
        ready = building.ensure_for_job(job, lines_of(version))
        if ready is not None:
            _note_use(version)
        return ready
    building.note_packages(job, environment_for(version, job.runtime, job.image).digest)
    since = job.not_before.timestamp()
    return ensure(
        version, job.runtime, cpu=job.cpu, ram=job.ram, network=job.network_policy, since=since, image=job.image
    )


def lines_of_job(job: Job) -> str:
    """Return the requirements of a job's packages, without inclusions. Raises Failed where its code is gone."""
    if job.environment_version_id:
        return lines_of(job.environment_version)
    return building.resolve(job)


def pins_of(version: EnvironmentVersion) -> str:
    """Return lines that install the built environment of a version again, in the versions that it has."""
    return text.pinned(version.requirements, Environment(version.user_id, version.packages).installed())


def in_use() -> set[tuple[int, str]]:
    """Return the environments that are being installed for their names."""
    return set(EnvironmentVersion.objects.filter(state=VersionState.BUILDING).values_list("user_id", "packages"))


def _note_use(version: EnvironmentVersion) -> None:
    """Record the use of a version, to within a minute."""
    now = timezone.now()
    stale = Q(used=None) | Q(used__lt=now - USED_EVERY)
    EnvironmentVersion.objects.filter(stale, pk=version.pk).update(used=now)
