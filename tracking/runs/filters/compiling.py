"""Compiles a filter's tree into a condition of the ORM on Job. Values only ever become parameters of the statement."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from jobs.models import Project, RunMetric, RunParam
from kernel.filters import values
from kernel.filters.grammar import All, Compare, FilterError, Key, Node, Not, Some
from kernel.messages import Message
from tracking.runs import goals, names

from . import attributes
from .comparing import NUMBERS, by_text, need, ordered

KINDS = {
    "metric": "metric", "metrics": "metric", "param": "param", "params": "param", "arg": "param", "args": "param",
    "argument": "param", "tag": "tag", "tags": "tag", "attribute": "attribute", "attributes": "attribute",
    "attr": "attribute", "run": "attribute",
}  # fmt: skip
GREATER_OR_LESS = ("<", "<=", ">", ">=")


@dataclass
class Scope:
    """The user whose runs are filtered, and which direction is better for the metrics of the project.

    `shared` is the project that a reader sees, to whom names in the owner's other runs are not revealed. `runs` are
    those that are filtered: they decide about a name that is a metric of some runs and an argument of others. What such
    plain names were taken for is in `ambiguous`.
    """

    user: object
    goals: dict[str, str] = field(default_factory=dict)
    shared: Project | None = None
    runs: QuerySet | None = None
    now: datetime = field(default_factory=timezone.now)
    ambiguous: dict[str, str] = field(default_factory=dict)

    def kind_of(self, name: str, operator: str) -> str:
        """Return what a plain name is: "attribute", "param", "metric" or "". Of both, it is the argument, unless
        numbers are compared and the argument, such as `--loss mse`, is none in any of these runs.
        """
        if name in attributes.ALL:
            return "attribute"
        within = {"user": self.user} if self.shared is None else {"user": self.user, "job__project": self.shared}
        kinds = _kinds(name, **within)
        # Most names are of one kind everywhere, which the index of names answers without a look at the runs.
        if len(kinds) > 1 and self.runs is not None:
            within = {"user": self.user, "job__in": self.runs.order_by().values("pk")}
            kinds = _kinds(name, **within) or kinds
        both = len(kinds) > 1
        if both and operator in GREATER_OR_LESS and not _has_numbers(name, **within):
            kinds = ["metric"]
        if both:
            self.ambiguous[name] = kinds[0]
        return kinds[0] if kinds else ""

    def like(self, name: str) -> str:
        """Return the most similar known name, or ""."""
        params, metrics = names.known(self.user, self.shared)
        known = [*attributes.ALL, *metrics, *params]
        return next(iter(difflib.get_close_matches(name, known, 1)), "")


def _kinds(name: str, **within) -> list[str]:
    """Return what a name is in the runs that match: "param", "metric", in this order, or neither."""
    models = {"param": RunParam, "metric": RunMetric}
    return [kind for kind, model in models.items() if model.objects.filter(name=name, **within).exists()]


def _has_numbers(name: str, **within) -> bool:
    return RunParam.objects.filter(name=name, number__isnull=False, **within).exists()


def condition(node: Node | None, scope: Scope) -> Q:
    """Return the condition of a tree. Raises FilterError."""
    match node:
        case None:
            return Q()
        case All(terms):
            result = Q()
            for term in terms:
                result &= condition(term, scope)
            return result
        case Some(terms):
            result = condition(terms[0], scope)
            for term in terms[1:]:
                result |= condition(term, scope)
            return result
        case Not(term):
            return ~condition(term, scope)
    return _compare(node, scope)


def _compare(node: Compare, scope: Scope) -> Q:
    kind, name = _resolved(node.key, node.operator, scope)
    if kind == "metric":
        return _metric(node, name, scope)
    if kind == "param":
        return _param(node, name, scope)
    if kind == "tag":
        return attributes.tag(node, name)
    return attributes.compare(node, name, scope.now)


def _resolved(key: Key, operator: str, scope: Scope) -> tuple[str, str]:
    """Return the kind that a name refers to, and the name without its prefix."""
    if key.statistic:
        kind, dot, rest = key.name.partition(".")
        return "metric", rest if dot and KINDS.get(kind) == "metric" else key.name
    kind, name = key.kind, key.name
    if not kind:
        first, dot, rest = name.partition(".")
        if dot and rest and first.lower() in KINDS:
            kind, name = first.lower(), rest
    if kind:
        if kind not in KINDS:
            raise FilterError(key.column, Message("%(kind)s is neither metric, param, tag nor attribute", kind=kind))
        if KINDS[kind] == "attribute" and name not in attributes.ALL:
            raise _unknown(key, scope)
        return KINDS[kind], name
    resolved = scope.kind_of(name, operator)
    if not resolved:
        raise _unknown(key, scope)
    return resolved, name


def _unknown(key: Key, scope: Scope) -> FilterError:
    near, name = scope.like(key.name), key.name[:100]
    what = Message("no run has a metric, an argument or an attribute %(name)s", name=name)
    if near:
        what = Message("%(problem)s; did you mean %(near)s?", problem=what, near=near[:100])
    return FilterError(key.column, what)


def _metric(node: Compare, name: str, scope: Scope) -> Q:
    need(node, NUMBERS)
    statistic = node.key.statistic or "last"
    column = goals.best_of(name, scope.goals) if statistic == "best" else statistic
    rows = RunMetric.objects.filter(job=OuterRef("pk"), user=scope.user, name=name)
    if node.operator == "null":
        return ~Q(Exists(rows))
    return Q(Exists(rows.filter(_ordered_numbers(column, node))))


def _param(node: Compare, name: str, scope: Scope) -> Q:
    rows = RunParam.objects.filter(job=OuterRef("pk"), user=scope.user, name=name)
    if node.operator == "null":
        return ~Q(Exists(rows))
    if node.operator in GREATER_OR_LESS:
        return Q(Exists(rows.filter(_beside(node))))
    if node.operator in ("like", "ilike"):
        return Q(Exists(rows.filter(by_text(F("text"), node))))
    same = Q()
    for value in node.values:
        try:
            same |= Q(text=values.text(value)) if value.quoted else _number(values.number(value))
        except FilterError:
            same |= Q(text=values.text(value))
    return Q(Exists(rows.filter(~same if node.operator == "!=" else same)))


def _number(value: float) -> Q:
    """Return the condition that an argument is this number. `place` is the number that the index has, where it is
    finite."""
    return Q(place=value) if math.isfinite(value) else Q(number=value)


def _ordered_numbers(column: str, node: Compare) -> Q:
    """Return the comparison of a column with a number. NaN, which is above all for PostgreSQL, is not greater."""
    same = ordered(F(column), node, values.number)
    return same & Q(**{f"{column}__lt": math.nan}) if node.operator in (">", ">=") else same


def _beside(node: Compare) -> Q:
    """Return the comparison of an argument with a number. The index finds by `place`, which is infinite for text."""
    same = _ordered_numbers("number", node)
    return same & ordered(F("place"), node, values.number)
