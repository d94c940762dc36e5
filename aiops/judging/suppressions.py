"""What people mark as normal in a workload: a session's shape, a template's rate. Called by pages and REST; read by the
judges of sessions and rates, which report it no more.

Only owners of the namespace and administrators mark. A mark holds the row of the workload's clock, as a judge does when
it writes, so what is found at the same moment is not reported either. Anomalies that a suppression covers stay stored
with a link to it, and are listed again when it is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import F, Q, QuerySet

from accounts.lifecycle import hold_active
from accounts.models import User
from aiops.logstore.base import Names
from aiops.models import RateAnomaly, RateClock, SessionAnomaly, SessionClock, Suppression
from kernel.errors import Refused
from kernel.locking import Missing, get_or_missing, lock_row

from . import rate_table, scope, session_table
from .template_text import is_like

Kind = Suppression.Kind
NAMED = ("cluster", "namespace", "deployment")
MAX_OF_A_WORKLOAD = 200


def visible(user: User, names: Names = ("", "", "")) -> QuerySet:
    """Return the suppressions in workloads that the user may see, of those names ("" is any), the newest first."""
    rows = Suppression.objects.filter(**{field: name for field, name in zip(NAMED, names, strict=True) if name})
    mine = scope.namespaces(user)
    rows = rows if mine is None else rows.filter(cluster=scope.LOCAL, namespace__in=mine)
    return rows.select_related("by")


def names_of(row: Suppression) -> Names:
    return row.cluster, row.namespace, row.deployment


def mark_session(user: User, number: int | None, note: str = "") -> Suppression:
    """Let sessions of the shape of this anomaly be normal in its workload. Idempotent. Raises Missing, Refused."""
    seen = get_or_missing(session_table.visible(user), number, "unusual session")
    _require_owner(user, names_of(seen.clock))
    with transaction.atomic():
        hold_active(user)
        clock = lock_row(SessionClock, pk=seen.clock_id)
        row = SessionAnomaly.objects.filter(pk=seen.pk).select_related("suppression__by").first() if clock else None
        if row is None:
            raise Missing("unusual session")
        if row.suppression is not None:
            return row.suppression
        if not row.shape:
            raise Refused(
                "cannot be marked: it was found by an earlier release, or has too many different lines", field="session"
            )
        given = {"value": row.value, "shape": row.shape, "reasons": row.reasons}
        made = _create(user, clock, kind=Kind.SESSION, since=row.since, lines=row.lines, note=note, **given)
        same = SessionAnomaly.objects.filter(clock=clock, suppression=None, shape=row.shape)
        same.update(suppression=made)
    return made


def mark_rate(user: User, number: int | None, note: str = "") -> Suppression:
    """Let the rate of this anomaly be usual in its workload, and end it if it goes on. Idempotent. Raises Missing,
    Refused.
    """
    seen = get_or_missing(rate_table.visible(user), number, "unusual rate")
    _require_owner(user, names_of(seen.clock))
    with transaction.atomic():
        hold_active(user)
        clock = lock_row(RateClock, pk=seen.clock_id)
        row = RateAnomaly.objects.filter(pk=seen.pk).select_related("suppression__by").first() if clock else None
        if row is None:
            raise Missing("unusual rate")
        if row.suppression is not None:
            return row.suppression
        given = {
            name: getattr(row, name) for name in ("kind", "template_id", "template", "since", "lines", "low", "high")
        }
        made = _create(user, clock, note=note, **given)
        same = RateAnomaly.objects.filter(clock=clock, suppression=None, kind=row.kind, template_id=row.template_id)
        if row.kind == Kind.OFTEN:
            same = same.filter(lines__lte=row.lines)
        same.filter(until=None).update(until=F("last"))
        same.update(suppression=made)
    return made


def undo(user: User, number: int | None) -> None:
    """Remove a suppression: what it covered is listed, and reported again. Raises Missing, Refused."""
    row = get_or_missing(visible(user), number, "suppression")
    _require_owner(user, names_of(row))
    row.delete()


def forget(names: Names) -> None:
    """Remove the suppressions of a workload whose lines are removed."""
    Suppression.objects.filter(**dict(zip(NAMED, names, strict=True))).delete()


def _require_owner(user: User, names: Names) -> None:
    if not scope.owns(user, *names[:2]):
        raise Refused("only the owner of the namespace and administrators can mark what is normal")


def _create(user: User, clock: SessionClock | RateClock, **values) -> Suppression:
    workload = {name: getattr(clock, name) for name in NAMED}
    if Suppression.objects.filter(**workload).count() >= MAX_OF_A_WORKLOAD:
        raise Refused("at most %(most)s suppressions of a workload", most=MAX_OF_A_WORKLOAD)
    return Suppression.objects.create(by=user, **workload, **values)


# --- for the judges ------------------------------------------------------------------------------------------------
def of_sessions() -> dict[Names, frozenset[int]]:
    """Return the numbers of the suppressions of sessions, by workload."""
    found: dict[Names, set[int]] = {}
    for *names, number in Suppression.objects.filter(kind=Kind.SESSION).order_by().values_list(*NAMED, "pk"):
        found.setdefault(tuple(names), set()).add(number)
    return {names: frozenset(numbers) for names, numbers in found.items()}


def shapes(numbers: frozenset[int]) -> list[tuple[int, list]]:
    """Return the numbers and the shapes of these suppressions, as far as they exist."""
    return list(Suppression.objects.filter(pk__in=numbers).order_by("pk").values_list("pk", "shape"))


class Rates:
    """The suppressions of the rates of one workload."""

    def __init__(self, names: Names):
        rows = Suppression.objects.filter(Q(kind=Kind.OFTEN) | Q(kind=Kind.SILENT))
        self.rows: Sequence[Suppression] = list(rows.filter(**dict(zip(NAMED, names, strict=True))).order_by("pk"))

    def __eq__(self, other) -> bool:
        return isinstance(other, Rates) and [row.pk for row in self.rows] == [row.pk for row in other.rows]

    __hash__ = None

    def of(self, kind: str) -> list[Suppression]:
        return [row for row in self.rows if row.kind == kind]


def covers(row: Suppression, text: str) -> bool:
    """Return whether a suppression can be about the template of that text: templates that are learned again have other
    numbers, and more or fewer variables.
    """
    return bool(text) and (is_like(row.template, text) or is_like(text, row.template))
