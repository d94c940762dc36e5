"""The verbs of named environments, each with the row that it locks, and their effects: for test_row_locks.py and
verb_effects.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from accounts.models import User
from jobs.models import EnvironmentVersion, NamedEnvironment
from jobs.packages.named import lifecycle

from .stepping_verbs import Effect

NUMBERS = itertools.count(1)
LOCKLESS = {"create_version", "require_owner", "require_unused", "seconds_building"}


def of_environments(user: Callable[[], User]) -> Iterator[tuple[str, EnvironmentVersion, Callable[[], object]]]:
    """Yield each verb with a version that it acts on, and a call of it."""
    for verb, state, call in [
        ("complete", "building", lambda row: lifecycle.complete(row.pk, "x==1", by="test")),
        ("complete: once failed", "failed", lambda row: lifecycle.complete(row.pk, "x==1", by="test")),
        ("fail", "building", lambda row: lifecycle.fail(row.pk, "x", by="test", package="y")),
        ("fail: once ready", "ready", lambda row: lifecycle.fail(row.pk, "x", by="test")),
        ("fail_all_of", "building", lambda row: lifecycle.fail_all_of(row.user, by="test")),
        ("retry_version", "failed", lambda row: lifecycle.retry_version(user=row.user, pk=row.pk, by="test")),
        ("delete_version", "ready", lambda row: lifecycle.delete_version(user=row.user, pk=row.pk, by="test")),
        ("forget", "deleting", lambda row: lifecycle.forget(row.pk)),
        ("forget: once ready", "ready", lambda row: lifecycle.forget(row.pk)),
    ]:
        owner = user()
        named = NamedEnvironment.objects.create(user=owner, tenant=owner.tenant, name=f"paint{next(NUMBERS)}", last=1)
        row = EnvironmentVersion.objects.create(
            environment=named, number=1, user=owner, requirements="x", packages="0" * 32, state=state
        )
        yield verb, row, lambda call=call, row=row: call(row)


EFFECTS = {
    "complete": Effect("ready", groups="pages", fields="pins", history="complete by test"),
    "complete: once failed": Effect("failed"),
    "fail": Effect("failed", groups="pages", fields="reason, failed_package", history="fail by test: x"),
    "fail: once ready": Effect("ready"),
    "fail_all_of": Effect(
        "failed", groups="pages", fields="reason", history="fail by test: cancelled: the account was deactivated"
    ),
    "retry_version": Effect(
        "building",
        tasks="jobs.build_environment@default",
        groups="pages",
        fields="packages, ordered",
        history="retry by test",
    ),
    "delete_version": Effect("deleting", tasks="jobs.erase_environment@files", groups="pages", history="erase by test"),
    "forget": Effect("gone", groups="pages"),
    "forget: once ready": Effect("ready"),
}
