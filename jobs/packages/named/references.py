"""References to named environments: `torch-cpu@3`, or `torch-cpu` for the newest version that is ready."""

from __future__ import annotations

import re

from accounts.models import SUBMITTING, User
from jobs.models import EnvironmentVersion, VersionState
from jobs.models.named_environment import MAX_NAME
from kernel.errors import Refused
from kernel.locking import Missing, lock_row
from kernel.messages import word
from resources.models import Tenant

NAME = rf"^[a-z0-9](?:[a-z0-9._-]{{0,{MAX_NAME - 2}}}[a-z0-9])?$"
REFERENCE = rf"{NAME[:-1]}(?:@[1-9][0-9]{{0,5}})?$"
FIELD = "environment"
OTHERS = (VersionState.BUILDING, VersionState.FAILED)


def named(value: str, field: str = "name") -> str:
    """Return the name of an environment. Raises Refused for any other text."""
    if not re.fullmatch(NAME, value):
        raise Refused("must be 1 to %(most)s characters a to z, 0 to 9 and . _ -, with a letter or digit at both ends",
                      field=field, most=MAX_NAME)  # fmt: skip
    return value


def reference(value: str, field: str = FIELD) -> str:
    """Return a reference to an environment. Raises Refused for any other text."""
    if not re.fullmatch(REFERENCE, value):
        raise Refused("must be the name of an environment, such as torch-cpu or torch-cpu@3", field=field)
    return value


def versions_of(tenant: Tenant, wanted: str):
    """Return the versions that a reference may mean, newest first; none for what is no reference."""
    if not re.fullmatch(REFERENCE, wanted):
        return EnvironmentVersion.objects.none()
    name, _at, number = wanted.partition("@")
    rows = EnvironmentVersion.objects.filter(environment__tenant=tenant, environment__name=name)
    rows = rows.filter(number=int(number)) if number else rows
    return rows.exclude(state=VersionState.DELETING).select_related("environment__tenant", "user").order_by("-number")


def resolved(tenant: Tenant, wanted: str) -> EnvironmentVersion:
    """Return the ready version that a reference means. Raises Refused, which says why there is none."""
    rows = versions_of(tenant, reference(wanted))
    if (ready := rows.filter(state=VersionState.READY).first()) is not None:
        return ready
    if (other := rows.first()) is None:
        raise Refused("there is no environment %(name)s in the tenant %(tenant)s",
                      field=FIELD, name=wanted, tenant=tenant.name)  # fmt: skip
    if other.state == VersionState.BUILDING:
        raise Refused("%(name)s is still being installed; it can be used once it is ready",
                      field=FIELD, name=other.reference)  # fmt: skip
    raise Refused("%(name)s could not be installed: %(reason)s",
                  field=FIELD, name=other.reference, reason=other.short_reason)  # fmt: skip


def held(tenant: Tenant, wanted: str) -> EnvironmentVersion:
    """Return the same, locked until the caller's transaction ends, so that it is not deleted meanwhile."""
    version = resolved(tenant, wanted)
    row = lock_row(EnvironmentVersion, pk=version.pk)
    if row is None or row.state != VersionState.READY:
        raise Refused("%(name)s is %(state)s", field=FIELD, name=version.reference,
                      state=word(row.state if row else VersionState.DELETING))  # fmt: skip
    return version


def columns(tenant: Tenant, wanted: str) -> dict:
    """Return the columns of an object that names an environment, in the transaction that stores them."""
    version = held(tenant, wanted)
    return {"environment": version.reference, "environment_version": version}


def readable(user: User):
    """Return the versions that a user may see: those of their tenants."""
    rows = EnvironmentVersion.objects.filter(environment__tenant__in=list(user.roles()))
    return rows.select_related("environment__tenant", "environment__user", "user")


def find(user: User, wanted: str, tenant: str | None) -> EnvironmentVersion:
    """Return the version of a reference in one of the user's tenants, by default their own one; without a number the
    newest. Raises Missing.
    """
    rows = readable(user).exclude(state=VersionState.DELETING)
    rows = rows.filter(environment__tenant__name=tenant) if tenant else rows.filter(environment__tenant=user.tenant_id)
    name, _at, number = wanted.partition("@")
    rows = rows.filter(environment__name=name)
    if number:
        rows = rows.filter(number=int(number)) if re.fullmatch("[1-9][0-9]{0,5}", number) else rows.none()
    version = rows.order_by("-number").first()
    if version is None:
        raise Missing("environment")
    return version


def offered(user: User) -> list[EnvironmentVersion]:
    """Return the ready versions that the user may use, for a form: by name, the newest first."""
    roles = {"environment__tenant__memberships__user": user.member_id,
             "environment__tenant__memberships__role__in": SUBMITTING}  # fmt: skip
    rows = EnvironmentVersion.objects.filter(state=VersionState.READY, **roles).select_related("environment__tenant")
    rows = rows.defer("requirements", "pins", "reason")
    return list(rows.order_by("environment__tenant__name", "environment__name", "-number")[:500])
