"""MLflow's search: filters joined by AND, an order, and pages. The expressions are read by the grammar of our own
filters (kernel.filters); what MLflow does not know, such as OR, is refused as MLflow does.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kernel.filters.grammar import All, Compare, FilterError, Key, Node, Not, parse

from .reading import Fields, WrongField, wrong

MAX_FILTER = 200_000  # characters: hundreds of ids in a list
MAX_TERMS = 200
VIEWS = {"ACTIVE_ONLY": 1, "DELETED_ONLY": 2, "ALL": 3}
KINDS = {
    "metric": "metric", "metrics": "metric",
    "param": "param", "params": "param", "parameter": "param", "parameters": "param",
    "tag": "tag", "tags": "tag",
    "attribute": "attribute", "attributes": "attribute", "attr": "attribute", "run": "attribute",
    "dataset": "dataset", "datasets": "dataset",
}  # fmt: skip
# Texts and names in quotation marks, blanks, and what is between them.
TOKENS = re.compile(r"""'[^']*'?|"[^"]*"?|`[^`]*`?|\s+|[^\s'"`]+""", re.DOTALL)
_ORDER = re.compile(r"\s*(.+?)(?:\s+(asc|desc))?\s*", re.IGNORECASE | re.DOTALL)


class Term(NamedTuple):
    """One comparison: `kind` is a value of KINDS; `operator` as in the grammar; `negative` for NOT IN, IS NOT NULL."""

    kind: str
    name: str
    operator: str
    values: tuple[str, ...]
    quoted: tuple[bool, ...]
    negative: bool

    def wrong(self, what: str) -> WrongField:
        return WrongField(f"Invalid filter on {self.kind} '{self.name[:100]}': {what}")

    def number(self) -> float:
        """Return the value of a comparison of numbers. Raises WrongField."""
        self.need({"=", "!=", "<", "<=", ">", ">="})
        text = self.values[0]
        try:
            if not self.quoted[0]:
                return float(text)
        except ValueError:
            pass
        raise self.wrong(f"expected a numeric value, found {text[:50]!r}")

    def texts(self) -> tuple[str, ...]:
        """Return the values of a comparison of texts. Raises WrongField."""
        self.need({"=", "!=", "like", "ilike", "in", "null"})
        if not all(self.quoted):
            raise self.wrong(f"expected a quoted string value (e.g. 'my-value'), found {self.values[0][:50]}")
        return self.values

    def need(self, operators: set[str]) -> None:
        if self.operator not in operators:
            raise self.wrong(f"invalid comparator, not one of {sorted(operators)}")


class Order(NamedTuple):
    kind: str
    name: str
    ascending: bool


def terms(text: str, kinds: Mapping[str, str] = KINDS) -> list[Term]:
    """Return the comparisons of a filter; `kinds` are the kinds of what is compared. Raises WrongField."""
    if text and not text.strip():
        raise WrongField(f"Invalid filter '{text[:200]}'. Could not be parsed.")
    try:
        tree = parse(plain(text), MAX_FILTER, MAX_TERMS)
    except FilterError as problem:
        raise WrongField(f"Invalid filter '{text[:200]}': {problem.problem}") from None
    nodes = [] if tree is None else tree.terms if isinstance(tree, All) else [tree]
    return [_term(node, text, kinds) for node in nodes]


def plain(text: str) -> str:
    """Return a filter without the ANDs that join nothing: MLflow's servers ignore them."""
    parts, joined = [], False
    for token in TOKENS.finditer(text[:MAX_FILTER]):
        part = token[0]
        is_and = part.lower() == "and"
        if is_and and (joined or not parts):
            continue
        parts.append(part)
        joined = is_and if part.strip() else joined
    while parts and (not parts[-1].strip() or parts[-1].lower() == "and"):
        parts.pop()
    return "".join(parts) + text[MAX_FILTER:]


def _term(node: Node, text: str, kinds: Mapping[str, str]) -> Term:
    negative = isinstance(node, Not)
    inner = node.term if isinstance(node, Not) else node
    plain = isinstance(inner, Compare) and not inner.key.statistic
    if not plain or (negative and inner.operator not in ("in", "null", "like", "ilike")):
        raise WrongField(f"Invalid clause(s) in filter string: '{text[:200]}': comparisons may be joined by AND only")
    kind, name = _identifier(inner.key, kinds)
    values = tuple(value.text for value in inner.values)
    return Term(kind, name, inner.operator, values, tuple(value.quoted for value in inner.values), negative)


def _identifier(key: Key, kinds: Mapping[str, str]) -> tuple[str, str]:
    kind, name = key.kind, key.name
    if not kind:
        first, dot, rest = name.partition(".")
        kind, name = (first, rest.strip('`"')) if dot and rest else ("attribute", name)
    if kind.lower() not in kinds:
        raise WrongField(f"Invalid entity type '{kind[:50]}'. Valid values are {sorted(set(kinds.values()))}")
    return kinds[kind.lower()], name


def orders(given: Iterable[str], kinds: Mapping[str, str] = KINDS) -> list[Order]:
    """Return the order that is asked for. Raises WrongField."""
    order_list: list[Order] = []
    for clause in given:
        name, direction = _ORDER.fullmatch(clause).groups() if clause.strip() else ("", None)
        try:
            tree = parse(f"{name} = 1")
        except FilterError:
            tree = None
        if not isinstance(tree, Compare) or tree.key.statistic:
            raise WrongField(f"Invalid order_by clause '{clause[:200]}'. Could not be parsed.")
        kind, name = _identifier(tree.key, kinds)
        if any((kind, name) == order[:2] for order in order_list):
            raise WrongField("`order_by` contains duplicate fields")
        order_list.append(Order(kind, name, (direction or "asc").lower() == "asc"))
    return order_list


def view(fields: Fields, name: str) -> int:
    """Return the number of a view: 1 is what is active, 2 what is deleted, 3 both."""
    given = fields.given.get(name)
    number = VIEWS.get(given, given) if isinstance(given, str) else given
    if number is None:
        return 1
    if number in ("1", "2", "3"):
        number = int(number)
    if number not in (1, 2, 3) or isinstance(number, bool):
        raise wrong(name, given, f"must be one of {', '.join(VIEWS)}")
    return number


def page(fields: Fields, default: int, most: int) -> tuple[int, int]:
    """Return how many rows are wanted, and how many come before them. Raises WrongField."""
    limit = fields.whole("max_results", default)
    if not 0 <= limit <= most:
        raise wrong("max_results", limit, f"must be at most {most} and not negative")
    token = fields.text("page_token")
    if not token:
        return limit, 0
    try:
        offset = json.loads(base64.b64decode(token, validate=True))["offset"]
    except (ValueError, TypeError, KeyError, RecursionError):
        offset = None
    if type(offset) is not int or not 0 <= offset < 2**31:
        raise WrongField("Invalid page token, could not be decoded")
    return limit, offset


def token(offset: int) -> str:
    return base64.b64encode(json.dumps({"offset": offset}).encode()).decode()
