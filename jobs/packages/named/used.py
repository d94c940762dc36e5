"""What uses a version of a named environment: jobs here; apps above register what they know (`apps.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db.models import Q

from accounts.models import User
from jobs.models import EnvironmentVersion, Job
from jobs.packages import building, using
from kernel.messages import Message, word

from .locating import LIVE_JOBS

LOOKED_AT = 50  # the newest jobs that have ended


@dataclass(frozen=True)
class NamedUse:
    """An object that names a version; `live`: it needs the version, which cannot be deleted."""

    kind: str
    user: str
    name: str
    live: bool

    @property
    def kind_word(self) -> Message:
        return word(self.kind)


Lister = Callable[[EnvironmentVersion], Iterable[NamedUse]]

_listers: list[Lister] = []


def register(lister: Lister) -> None:
    """Add a function that returns what uses a version."""
    if lister not in _listers:
        _listers.append(lister)


def uses_of(version: EnvironmentVersion) -> list[NamedUse]:
    """Return what uses a version: what needs it now first."""
    uses = [*_jobs(version), *(use for lister in _listers for use in lister(version))]
    return sorted(uses, key=lambda use: not use.live)


def is_named_to(reader: User, use: NamedUse, version: EnvironmentVersion) -> bool:
    """Return whether the reader may know the name of an object: their own, or as an administrator of the tenant."""
    return use.user == reader.username or reader.administers(version.environment.tenant_id)


def shown_to(reader: User, version: EnvironmentVersion, uses: list[NamedUse]) -> list[NamedUse]:
    """Return the uses of a version without the names of others' objects, except for the tenant's administrators."""
    return [use if is_named_to(reader, use, version) else NamedUse(use.kind, use.user, "", use.live) for use in uses]


def _jobs(version: EnvironmentVersion) -> list[NamedUse]:
    """Return the jobs of a version: those that need it now, and the newest of the others."""
    rows = Job.kept.filter(environment_version=version).order_by("-pk").values_list("user__username", "name", "state")
    live = rows.filter(state__in=LIVE_JOBS)
    others = rows.filter(~Q(state__in=LIVE_JOBS))[:LOOKED_AT]
    return [NamedUse("job", user, name, state in LIVE_JOBS) for user, name, state in (*live, *others)]


def of_folder(number: int) -> list[using.Use]:
    """Return the named environments of a user as users of the folders that have their files."""
    rows = EnvironmentVersion.objects.filter(user=number).select_related("environment").order_by("-pk")
    keys = needed()
    return [using.Use(row.packages, "environment", row.reference, (number, row.packages) in keys) for row in rows]


def needed() -> set[using.Key]:
    """Return the environments that are needed now, by whatever it is."""
    live = Job.objects.filter(state__in=LIVE_JOBS).exclude(packages="")
    return set(live.values_list(building.OWNER_OF_JOB, "packages")) | using.in_use()
