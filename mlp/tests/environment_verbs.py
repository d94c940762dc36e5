"""The verbs of named environments, each with the row that it locks: for test_row_locks.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from accounts.models import User
from jobs.models import EnvironmentVersion, NamedEnvironment
from jobs.packages.named import lifecycle

NUMBERS = itertools.count(1)
LOCKLESS = {"create_version", "require_owner", "require_unused", "seconds_building"}


def of_environments(user: Callable[[], User]) -> Iterator[tuple[str, EnvironmentVersion, Callable[[], object]]]:
    """Yield each verb with a version that it acts on, and a call of it."""

    def version(state: str = "building") -> EnvironmentVersion:
        owner = user()
        named = NamedEnvironment.objects.create(user=owner, tenant=owner.tenant, name=f"paint{next(NUMBERS)}", last=1)
        return EnvironmentVersion.objects.create(
            environment=named, number=1, user=owner, requirements="x", packages="0" * 32, state=state
        )

    row = version()
    yield "complete", row, lambda row=row: lifecycle.complete(row.pk, "x==1", by="test")
    row = version()
    yield "fail", row, lambda row=row: lifecycle.fail(row.pk, "x", by="test")
    row = version()
    yield "fail_all_of", row, lambda row=row: lifecycle.fail_all_of(row.user, by="test")
    row = version("failed")
    yield "retry_version", row, lambda row=row: lifecycle.retry_version(user=row.user, pk=row.pk, by="test")
    row = version("ready")
    yield "delete_version", row, lambda row=row: lifecycle.delete_version(user=row.user, pk=row.pk, by="test")
    row = version("deleting")
    yield "forget", row, lambda row=row: lifecycle.forget(row.pk)
