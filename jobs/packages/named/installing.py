"""Installs the versions of named environments, and removes those that are deleted. Called by actors and reconcile."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from django.conf import settings

import runners
from jobs.models import EnvironmentVersion, VersionState
from jobs.packages import explaining, store
from jobs.packages.building import Failed
from jobs.packages.store import Environment
from kernel import after_commit
from kernel.messages import Message
from runners import owned

from . import lifecycle, locating, used

log = logging.getLogger(__name__)

CPU, RAM_MIB = 1.0, 2048  # of an installation
LOOK_AGAIN_MS = 500
STOP_GRACE_S = 2
LOOKED_AT, TAIL = 400, 30  # lines of the installer's output
BY = "runner"
PATIENCE_S = 600  # how long an installation may fail to start
# uv names the large ones when it begins, and all at the end; pip names each before.
FETCHED = re.compile(
    r"^\s*(?:Collecting|Processing|Building(?= \S+==)|Downloading(?! \S+\.(?:whl|gz)\b)|\+) ([\w.-]+)", re.MULTILINE
)


def build(pk: int, follow: bool = True) -> None:
    """Start the installation of a version, or look at it and record its end. May be repeated."""
    version = _version(pk, VersionState.BUILDING)
    if version is None:
        return
    digest = locating.environment_for(version, version.runtime).digest
    if digest != version.packages:  # the platform or its index has changed since it was ordered
        EnvironmentVersion.objects.filter(pk=pk, state=VersionState.BUILDING).update(packages=digest)
        version.packages = digest
    try:
        ready = locating.ensure(
            version, version.runtime, cpu=CPU, ram=RAM_MIB, network=version.tenant.network_policy,
            since=version.ordered.timestamp(),
        )  # fmt: skip
    except Failed as problem:
        package, why = explaining.culprit(runners.tail(_of(version).log, LOOKED_AT))
        reason = owned.with_log(why, _of(version).log) if why else problem.reason
        return lifecycle.fail(pk, reason, BY, package)
    except (runners.RunnerError, OSError) as problem:
        if lifecycle.seconds_building(version) > PATIENCE_S + settings.PACKAGES_TIMEOUT_S:
            return lifecycle.fail(pk, Message("the installation could not be started"), BY)
        log.warning("the installation of %s could not go on; it is tried again: %s", version, problem)
        return None
    if ready is not None:
        return lifecycle.complete(pk, locating.pins_of(version), BY)
    if follow:
        after_commit.enqueue("jobs.build_environment", pk, delay_ms=LOOK_AGAIN_MS)
    return None


def erase(pk: int, follow: bool = True) -> None:
    """End the installation of a deleted version, remove its files, then its row. May be repeated."""
    version = _version(pk, VersionState.DELETING)
    if version is None:
        return
    environment = _of(version)
    if not owned.stop(environment.run_name, STOP_GRACE_S):
        if follow:
            after_commit.enqueue("jobs.erase_environment", pk, queue="files", delay_ms=LOOK_AGAIN_MS)
        return
    runners.get().forget(environment.run_name)
    for each in {environment, *_installed_again(version)}:
        each.remove()
    lifecycle.forget(pk)


def _installed_again(version: EnvironmentVersion) -> set[Environment]:
    """Return the environments that have the pins of a version, for any runtime or image, and that nothing needs now."""
    lines, needed = {locating.wanted_of(version), locating.lines_of(version)}, used.needed()
    of_it = {each for each in store.of_user(version.user_id) if each.wanted() in lines}
    return {each for each in of_it if (each.number, each.digest) not in needed}


@dataclass(frozen=True)
class Progress:
    """How far the installation of a version is: `collected` packages, its last lines, the seconds so far."""

    collected: int
    log: str
    seconds: int


def progress_of(version: EnvironmentVersion) -> Progress:
    """Return how far an installation is; of one that has ended its log while it is kept."""
    text = runners.tail(_of(version).log, LOOKED_AT)
    seconds = max(0, int(lifecycle.seconds_building(version))) if version.state == VersionState.BUILDING else 0
    return Progress(len(set(FETCHED.findall(text))), "\n".join(text.splitlines()[-TAIL:]), seconds)


def unfinished() -> list[tuple[int, str]]:
    """Return (key, state) of what is being installed or deleted, for reconcile."""
    states = (VersionState.BUILDING, VersionState.DELETING)
    return list(EnvironmentVersion.objects.filter(state__in=states).values_list("pk", "state")[:200])


def resume() -> None:
    """Continue what a lost message has left."""
    for pk, state in unfinished():
        if state == VersionState.BUILDING:
            after_commit.enqueue("jobs.build_environment", pk, False)
        else:
            after_commit.enqueue("jobs.erase_environment", pk, False, queue="files")


def _version(pk: int, state: str) -> EnvironmentVersion | None:
    rows = EnvironmentVersion.objects.select_related("environment__tenant", "user")
    return rows.filter(pk=pk, state=state).first()


def _of(version: EnvironmentVersion) -> Environment:
    return Environment(version.user_id, version.packages)
