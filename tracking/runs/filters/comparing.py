"""Comparisons of an expression with the values of a filter."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Lookup, Q
from django.db.models import Value as Constant
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from kernel.filters import values
from kernel.filters.grammar import Compare, FilterError
from kernel.messages import Message

ORDERED = {
    "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan, ">=": GreaterThanOrEqual, "=": Exact,
}  # fmt: skip
NUMBERS = frozenset({"=", "!=", "<", "<=", ">", ">=", "in", "null"})
TEXTS = frozenset({"=", "!=", "in", "like", "ilike", "null"})


class Like(Lookup):
    """`left LIKE pattern` without an escape character; `insensitive` takes a and A for the same."""

    lookup_name = "plain_like"
    prepare_rhs = False

    def __init__(self, lhs, rhs, insensitive: bool = False):
        super().__init__(lhs, rhs)
        self.insensitive = insensitive

    def as_sql(self, compiler, connection):
        left, left_params = self.process_lhs(compiler, connection)
        operator = "ILIKE" if self.insensitive else "LIKE"
        return f"{left} {operator} %s ESCAPE ''", (*left_params, self.rhs)


def need(node: Compare, allowed: frozenset[str]) -> None:
    """Raise FilterError for an operator that the left side does not support."""
    if node.operator not in allowed:
        operators = ", ".join(sorted(allowed - {"null"})) + ", is null"
        raise FilterError(node.key.column, Message("%(name)s cannot be compared by %(operator)s, only by %(allowed)s",
            name=node.key.name[:100], operator=node.operator, allowed=operators))  # fmt: skip


def ordered(left, node: Compare, read: Callable) -> Q:
    """Return the comparison of an expression with values that have an order."""
    if node.operator in ("in", "=", "!="):
        same = Q()
        for value in node.values:
            same |= Q(Exact(left, Constant(read(value))))
        return ~same if node.operator == "!=" else same
    return Q(ORDERED[node.operator](left, Constant(read(node.values[0]))))


def by_text(left, node: Compare) -> Q:
    """Return the comparison of an expression with texts."""
    need(node, TEXTS)
    if node.operator in ("like", "ilike"):
        return Q(Like(left, values.pattern(node.values[0]), node.operator == "ilike"))
    return ordered(left, node, values.text)
