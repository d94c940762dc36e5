"""The verbs of named environments: every change of state is made here. Called by api, pages, admin, actors, reconcile.

Who has made a name, and the administrators of its tenant, change it; all members of the tenant use it.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from accounts.tenancy import members
from jobs.models import EnvironmentVersion, NamedEnvironment, Runtime, VersionState
from kernel import after_commit, broker, disk
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, lock_row, locked
from kernel.messages import Message, word
from kernel.models import record_created
from runners import owned

from . import locating, references, used, wanted

MAX_BUILDING = 2  # of a user at the same time: they take no resources of the tenant
MAX_NAMES = 200  # of a tenant
DEACTIVATED = Message("cancelled: the account was deactivated")


def create_version(
    *, user: User, name: str, requirements: str = "", pyproject: str = "", lock: str = "", runtime: str = "python",
    tenant: str | None = None, by: str,
) -> EnvironmentVersion:  # fmt: skip
    """Create the next version of a name, the first one of a new name, and enqueue its installation.

    The packages are lines of a requirements file, or the text of a pyproject.toml with or without that of its uv.lock.
    Raises Missing for a tenant of others; Refused: what is no requirement, a name that another user has made, too many
    at the same time. Raises Fault, with nothing stored, when the task queue is not available.
    """
    references.named(name)
    members.chosen(user, tenant)
    lines = wanted.lines_of(requirements, pyproject, lock)
    broker.require()
    disk.require()
    with transaction.atomic():
        place = members.hold(user, tenant)
        environment = _named(user, place, name)
        building = EnvironmentVersion.objects.filter(user=user, state=VersionState.BUILDING).count()
        if building >= MAX_BUILDING:
            raise Refused("at most %(most)s of your environments can be installed at the same time; wait until one is "
                          "ready", field="name", most=MAX_BUILDING)  # fmt: skip
        environment.last += 1
        environment.save(update_fields=["last"])
        version = EnvironmentVersion(
            environment=environment, number=environment.last, user=user, runtime=Runtime(runtime), requirements=lines
        )
        version.packages = locating.environment_for(version, version.runtime).digest
        version.save()
        record_created(version, by=by)
        after_commit.enqueue("jobs.build_environment", version.pk)
    return version


def _named(user: User, tenant, name: str) -> NamedEnvironment:
    """Return the row of a name, locked; made for the user where there is none. Raises Refused for one of others."""
    if not NamedEnvironment.objects.filter(tenant=tenant, name=name).exists():
        if NamedEnvironment.objects.filter(tenant=tenant).count() >= MAX_NAMES:
            raise Refused("a tenant has at most %(most)s named environments", field="name", most=MAX_NAMES)
        NamedEnvironment.objects.get_or_create(tenant=tenant, name=name, defaults={"user": user})
    environment = lock_row(NamedEnvironment, tenant=tenant, name=name)
    require_owner(user, environment)
    return environment


def require_owner(user: User, environment: NamedEnvironment) -> None:
    """Raise Refused unless the user may change the environment: who has made it, and its tenant's administrators."""
    if environment.user_id != user.pk and not user.administers(environment.tenant_id):
        raise Refused("only %(owner)s and the administrators of the tenant can change this environment",
                      field="name", owner=environment.user.username)  # fmt: skip


def retry_version(*, user: User, pk: int, by: str) -> EnvironmentVersion:
    """Order the installation of a failed version again. Raises Missing; Refused for one of others; WrongState."""
    broker.require()
    with locked(EnvironmentVersion, pk=pk) as version:
        require_owner(user, version.environment)
        version.retry(by=by)
        version.reason, version.failed_package, version.ordered = "", "", timezone.now()
        version.packages = locating.environment_for(version, version.runtime).digest
        version.save()
        after_commit.enqueue("jobs.build_environment", version.pk)
    return version


def complete(pk: int, pins: str, by: str) -> None:
    """Move a version from building to ready; `pins` are the versions that were installed."""
    with suppress(Missing), locked(EnvironmentVersion, pk=pk) as version:
        if version.state == VersionState.BUILDING:
            version.complete(by=by)
            version.reason, version.pins = "", pins
            version.save()


def fail(pk: int, reason: str, by: str, package: str = "") -> None:
    """Move a version from building to failed; `package` is the one that could not be installed."""
    with suppress(Missing), locked(EnvironmentVersion, pk=pk) as version:
        if version.state == VersionState.BUILDING:
            version.fail(by=by, reason=reason)
            version.failed_package = package
            version.save()


def fail_all_of(user: User, by: str) -> None:
    """Fail the versions that a deregistered user was installing, in that transaction."""
    rows = EnvironmentVersion.objects.filter(user=user, state=VersionState.BUILDING).order_by("pk")
    for version in list(rows.select_for_update(no_key=True)):
        version.fail(by=by, reason=DEACTIVATED)
        version.save()


def require_unused(
    version: EnvironmentVersion, reader: User | None = None, uses: list[used.NamedUse] | None = None
) -> None:
    """Raise WrongState, which says what needs the version, if anything does; others' objects are named to who may
    know of them. `uses` are those of the version where they are known already.
    """
    use = next((use for use in (used.uses_of(version) if uses is None else uses) if use.live), None)
    if use is None:
        return
    if reader is None or used.is_named_to(reader, use, version):
        raise WrongState("the %(kind)s %(name)s of %(user)s uses this environment",
                         kind=word(use.kind), name=use.name, user=use.user)  # fmt: skip
    raise WrongState("an object of %(user)s uses this environment: %(kind)s", kind=word(use.kind), user=use.user)


def delete_version(*, user: User, pk: int, by: str) -> EnvironmentVersion:
    """Move a version to deleting that nothing uses; its files are removed in the background, then the row.

    Raises Missing; Refused for one of others; WrongState while something uses it.
    """
    broker.require()
    with locked(EnvironmentVersion, pk=pk) as version:
        require_owner(user, version.environment)
        require_unused(version, user)
        version.erase(by=by)
        version.save()
        after_commit.enqueue("jobs.erase_environment", version.pk, queue="files")
    return version


def forget(pk: int) -> None:
    """Remove the row of a version whose files are removed."""
    with suppress(Missing), locked(EnvironmentVersion, pk=pk) as version:
        if version.state == VersionState.DELETING:
            owner, name = version.history_owner, version.history_name
            version.delete()
            after_commit.changed(owner, "environmentversion", name)


def seconds_building(version: EnvironmentVersion) -> float:
    """Return for how long the version has been installed."""
    return owned.seconds_since(version.ordered)
