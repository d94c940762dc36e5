"""The attributes of a run that a filter can name, and how they are compared."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import DurationField, ExpressionWrapper, F, Func, Q, TextField
from django.db.models import Value as Constant
from django.db.models.functions import Coalesce, Now

from jobs import states
from kernel.filters import values
from kernel.filters.grammar import Compare, FilterError, Literal
from kernel.messages import Message

from .comparing import by_text, need, ordered

TEXTS = {
    "name": "name", "script": "entry", "entry": "entry", "runtime": "runtime", "notes": "notes", "reason": "reason",
    "group": "group", "project": "project__name", "network": "network",
    "origin": "origin", "title": "title", "image": "image", "gpu_type": "gpu_type",
}  # fmt: skip
NUMBERS = {
    "cpu": "cpu", "gpu": "gpu", "ram": "ram", "memory": "ram", "workers": "workers", "retries": "retries",
    "priority": "priority", "timeout": "timeout", "attempt": "attempt", "progress": "progress",
    "preemptions": "preemptions",
}  # fmt: skip
TIMES = {"created": "created", "started": "started", "ended": "ended"}
QUEUED_AGAIN = ExpressionWrapper(F("queued_s") * Constant(timedelta(seconds=1)), output_field=DurationField())
DURATION = ExpressionWrapper(Coalesce("ended", Now()) - F("started") - QUEUED_AGAIN, output_field=DurationField())
WAITING = ExpressionWrapper(Coalesce("started", "ended", Now()) - F("created"), output_field=DurationField())
DURATIONS = {"duration": DURATION, "waiting": WAITING}
SAME = frozenset({"=", "!=", "in"})
ORDERED = SAME | {"<", "<=", ">", ">=", "null"}
ALL = (*TEXTS, *NUMBERS, *TIMES, *DURATIONS, "state", "dataset", "tag", "favourite")


def compare(node: Compare, name: str, now: datetime) -> Q:
    """Return the comparison of an attribute."""
    if name in TEXTS:
        return Q(**{TEXTS[name]: ""}) if node.operator == "null" else by_text(F(TEXTS[name]), node)
    if name in NUMBERS:
        need(node, ORDERED - {"null"})
        return ordered(F(NUMBERS[name]), node, values.whole)
    if name in TIMES:
        need(node, ORDERED)
        return _time(TIMES[name], node, now)
    if name in DURATIONS:
        need(node, ORDERED)
        return Q(started=None) if node.operator == "null" else ordered(DURATIONS[name], node, values.duration)
    need(node, SAME | ({"null"} if name in ("dataset", "tag") else frozenset()))
    if node.operator == "null":
        return Q(datasets=[]) if name == "dataset" else Q(tags={})
    same = Q()
    for value in node.values:
        same |= {"state": _state, "dataset": _dataset, "tag": _label, "favourite": _favourite}[name](value)
    return ~same if node.operator == "!=" else same


def tag(node: Compare, name: str) -> Q:
    """Return the comparison of the value of one tag."""
    present = Q(tags__has_key=name)
    if node.operator == "null":
        return ~present
    return present & by_text(tag_value(name), node)


def tag_value(name: str, field: str = "tags") -> Func:
    """Return the expression of a tag's value. Django's own takes a tag named 1 as an index of a list."""
    return Func(F(field), Constant(name), template="(%(expressions)s)", arg_joiner=" ->> ", output_field=TextField())


def _state(value: Literal) -> Q:
    known = {**states.CONDITIONS, **states.REST}
    if value.text.lower() not in known:
        raise FilterError(
            value.column,
            Message(
                "%(value)s is not a state; the states are %(states)s", value=value.text[:50], states=", ".join(known)
            ),
        )
    return known[value.text.lower()]


def _dataset(value: Literal) -> Q:
    return Q(datasets__contains=[values.text(value)])


def _label(value: Literal) -> Q:
    return Q(tags__has_key=values.text(value))


def _favourite(value: Literal) -> Q:
    return Q(favourite=values.flag(value))


def _time(name: str, node: Compare, now: datetime) -> Q:
    if node.operator == "null":
        return Q(**{name: None})
    ranges = [values.moments(value, now) for value in node.values]
    if node.operator in SAME:
        same = Q()
        for begin, end in ranges:
            last = Q(**{f"{name}__lt": end}) if end > begin else Q(**{f"{name}__lte": begin})
            same |= Q(**{f"{name}__gte": begin}) & last
        return ~same if node.operator == "!=" else same
    begin, end = ranges[0]
    edge = end if node.operator in (">", "<=") and end > begin else begin  # later than a day is after its end
    lookup = {"<": "lt", "<=": "lt" if end > begin else "lte", ">": "gte" if end > begin else "gt", ">=": "gte"}
    return Q(**{f"{name}__{lookup[node.operator]}": edge})
