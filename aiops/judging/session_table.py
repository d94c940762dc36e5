"""Unusual sessions for people: which a user may see, why each is odd, and the search for its lines."""

from __future__ import annotations

from django.db.models import QuerySet

from aiops.logstore.base import Names
from aiops.models import SessionAnomaly, SessionClock
from kernel.messages import Message

from . import scope
from .rate_table import of_clocks

Reason = SessionAnomaly.Reason


def odd(names: Names) -> QuerySet:
    """Return the unusual sessions of a workload that nobody has marked as normal, the newest first."""
    return of_clocks(SessionAnomaly.objects.filter(suppression=None), names).select_related("clock")


def visible(user, names: Names | None = None) -> QuerySet:
    """Return the unusual sessions of the workloads that the user may see, of those names ("" is any), as `odd`; without
    names also those that are marked as normal.
    """
    rows = odd(names) if names is not None else SessionAnomaly.objects.select_related("clock")
    mine = scope.namespaces(user)
    return rows if mine is None else rows.filter(clock__cluster=scope.LOCAL, clock__namespace__in=mine)


def is_judged(names: Names) -> bool:
    """Return whether the workload's sessions have been judged."""
    fields = zip(("cluster", "namespace", "deployment"), names, strict=True)
    return SessionClock.objects.filter(**dict(fields)).exists()


def filters(row: SessionAnomaly) -> dict[str, str]:
    """Return the filters of a search for the session's lines."""
    found = {"attribute": f"{row.attribute}={row.value}"} if row.attribute else {"q": f'"{row.value}"'}
    clock = row.clock
    workload = {"cluster": clock.cluster, "namespace": clock.namespace, "deployment": clock.deployment}
    return {**workload, **found, "since": str(row.since), "until": str(row.last + 1)}


def describe(reason: list) -> str:
    """Return one of SessionAnomaly.reasons as a sentence."""
    kind, template, *more = reason
    if kind == Reason.ORDER:
        return Message("out of order: “%(second)s” came before “%(first)s”", first=template, second=more[0])
    here, usual = more
    if kind == Reason.MISSING:
        return Message("missing: “%(template)s”, usually %(usual)s×", template=template, usual=usual)
    if kind == Reason.EXTRA:
        return Message("extra: “%(template)s”, %(here)s×", template=template, here=here)
    if kind == Reason.OFTEN:
        words = Message(
            "too often: “%(template)s”, %(here)s×, usually %(usual)s×", template=template, here=here, usual=usual
        )
        return words
    return Message("too few: “%(template)s”, %(here)s×, usually %(usual)s×", template=template, here=here, usual=usual)
