"""The order of a table of runs, and keyset pagination: the thousandth page takes as long as the first.

Rows without a value come last, the newest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core import signing
from django.db.models import BooleanField, F, FilteredRelation, Func, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Left, Lower

from jobs.models.summary import SORTED
from tracking.runs.columns import Column
from tracking.runs.filters import attributes

TEXT = {"name": "name", "script": "entry", "runtime": "runtime", "group": "group", "project": "project__name",
        "origin": "origin", "image": "image", "gpu_type": "gpu_type"}  # fmt: skip
NUMBERS = {"progress", "cpu", "gpu", "ram", "workers", "attempt"}
SALT = "tracking.runs.order"


@dataclass(frozen=True)
class Order:
    """A column and a direction."""

    column: Column
    descending: bool

    @property
    def key(self) -> str:
        return ("-" if self.descending else "") + self.column.key

    def joined(self, runs: QuerySet, user) -> QuerySet:
        """Return the runs with `chosen`: the row of the argument or metric that they are sorted by."""
        name = self.column.name
        if self.column.kind == "param":
            join = FilteredRelation("params", condition=Q(params__user=user, params__name=name))
        elif self.column.is_metric:
            join = FilteredRelation("summaries", condition=Q(summaries__user=user, summaries__name=name))
        else:
            return runs
        return runs.annotate(chosen=join)

    def keyed(self) -> tuple[Q, dict[str, object]]:
        """Return the condition that a run has the values of the sort key, and these as annotations."""
        name = self.column.name
        if self.column.kind == "param":
            return Q(chosen__id__isnull=False), {"key": F("chosen__place"), "key_text": Left("chosen__text", SORTED)}
        if self.column.is_metric:
            return Q(chosen__id__isnull=False), {"key": F(f"chosen__{self.column.field}")}
        if name in ("started", "ended"):
            return Q(**{f"{name}__isnull": False}), {"key": F(name)}
        if name in attributes.DURATIONS:
            started = Q(started__isnull=False) if name == "duration" else Q()
            return started, {"key": attributes.DURATIONS[name]}
        if name in NUMBERS:
            return Q(), {"key": F(name)}
        if name in TEXT:
            empty = ~Q(**{TEXT[name]: ""}) if name == "group" else Q()
            return empty, {"key": F(TEXT[name])}
        if name == "state":
            return Q(), {"key": F("display_state")}
        if name in ("notes", "reason"):
            return ~Q(**{name: ""}), {"key": Lower(Left(name, SORTED))}
        field, none = ("datasets", []) if name == "dataset" else ("tags", {})
        return ~Q(**{field: none}), {"key": Left(Cast(field, TextField()), SORTED)}


@dataclass(frozen=True)
class Cursor:
    """A position between two rows: the sort values of the row there, None for missing ones, and its id."""

    values: tuple | None
    pk: int

    def text(self, order: Order) -> str:
        """Return the cursor as text for addresses. It is signed, so that its values have the types of the order's
        columns.
        """
        values = None if self.values is None else [_plain(value) for value in self.values]
        return signing.dumps([order.key, values, self.pk], salt=SALT)


def _plain(value):
    if isinstance(value, datetime):
        return {"at": value.isoformat()}
    if isinstance(value, timedelta):
        return {"us": round(value / timedelta(microseconds=1))}
    return value


def _value(plain):
    if isinstance(plain, dict):
        return datetime.fromisoformat(plain["at"]) if "at" in plain else timedelta(microseconds=plain["us"])
    return plain


def cursor(text: str, order: Order) -> Cursor | None:
    """Parse the cursor of an address; None for an invalid one, or one of another order."""
    try:
        key, values, pk = signing.loads(text, salt=SALT)
    except signing.BadSignature:
        return None
    if key != order.key:
        return None
    return Cursor(None if values is None else tuple(_value(value) for value in values), pk)


class Pages:
    """The rows of a queryset in an order, a page at a time."""

    def __init__(self, runs: QuerySet, order: Order, user):
        self.order = order
        self.keys: list[str] = []
        if order.column.key == "created":
            self.filled, self.empty = runs, None
            return
        has_value, values = order.keyed()
        runs = order.joined(runs, user)
        self.filled, self.keys = runs.filter(has_value).annotate(**values), list(values)
        self.empty = runs.filter(~has_value) if has_value else None

    def after(self, place: Cursor | None, limit: int) -> list[Cursor]:
        """Return at most `limit` rows after a cursor; without one from the first row on."""
        rows: list[Cursor] = []
        if place is None or place.values is not None:
            rows = self._filled(place, limit, self.order.descending)
            place = None
        if self.empty is not None and len(rows) < limit:
            rows += self._empty(place, limit - len(rows), True)
        return rows

    def before(self, place: Cursor, limit: int) -> list[Cursor]:
        """Return the nearest rows before a cursor, in the order of the table."""
        rows: list[Cursor] = []
        if place.values is None and self.empty is not None:
            rows = self._empty(place, limit, False)
            place = None
        if len(rows) < limit:
            rows += self._filled(place, limit - len(rows), not self.order.descending)
        return rows[::-1]

    def _filled(self, place: Cursor | None, limit: int, descending: bool) -> list[Cursor]:
        keys = [*self.keys, "pk"]
        rows = self.filled
        if place is not None and len(place.values or ()) == len(self.keys):
            rows = rows.filter(_beyond(keys, [*(place.values or ()), place.pk], descending))
        rows = rows.order_by(*(("-" if descending else "") + key for key in keys)).values_list(*keys)
        return [Cursor(tuple(row[:-1]), row[-1]) for row in rows[:limit]]

    def _empty(self, place: Cursor | None, limit: int, descending: bool) -> list[Cursor]:
        rows = self.empty
        if place is not None:
            rows = rows.filter(**{"pk__lt" if descending else "pk__gt": place.pk})
        return [
            Cursor(None, pk) for pk in rows.order_by("-pk" if descending else "pk").values_list("pk", flat=True)[:limit]
        ]


def _beyond(keys: list[str], values: list, descending: bool) -> Func:
    """Return the row comparison with a cursor's values, for which PostgreSQL uses the index."""
    left = Func(*(F(key) for key in keys), function="ROW", output_field=TextField())
    right = Func(*(Value(value) for value in values), function="ROW", output_field=TextField())
    sign = " < " if descending else " > "
    return Func(left, right, template="(%(expressions)s)", arg_joiner=sign, output_field=BooleanField())
