"""The language of filter expressions, read by Lark into the tree of the classes below.

    loss < 0.1 and (tag = baseline or not state in (failed, cancelled)) and script like '%/train.py'

A name is a metric, an argument or an attribute; `metric.`, `param.` and `tag.` in front say which. Odd names are in
backticks or double quotes. `min(loss)`, `max(…)`, `last(…)` and `best(…)` choose a value of a metric.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from kernel.errors import Refused
from kernel.messages import Message
from kernel.sanitize import UNSTORABLE

MAX_LENGTH = 4000
MAX_TERMS = 50
MAX_DEPTH = 50

GRAMMAR = r"""
start: either
?either: both (_OR both)*
?both: one (_AND one)*
?one: _NOT one -> negation
    | "(" either ")"
    | comparison
comparison: key OPERATOR literal -> compare
    | key LIKE literal -> compare
    | key _NOT LIKE literal -> unlike
    | key _IN list -> among
    | key _NOT _IN list -> outside
    | key _IS _NULL -> absent
    | key _IS _NOT _NULL -> present
?key: NAME -> plain
    | STATISTIC NAME ")" -> statistic
list: "(" literal ("," literal)* ")"
literal: TEXT | WORD

_OR.3: /or(?![\w.\-])/i
_AND.3: /and(?![\w.\-])/i
_NOT.3: /not(?![\w.\-])/i
_IN.3: /in(?![\w.\-])/i
_IS.3: /is(?![\w.\-])/i
_NULL.3: /null(?![\w.\-])/i
LIKE.3: /i?like(?![\w.\-])/i
STATISTIC.4: /(min|max|last|best)[ \t]*\(/i
OPERATOR: "=" | "==" | "!=" | "<>" | "<=" | ">=" | "<" | ">"
NAME.2: /([A-Za-z]+\.)?(`[^`]+`|"[^"]+")|[^\W\d][\w.\-\/:@]*/
TEXT.2: /'([^']|'')*'|"([^"]|"")*"/
WORD: /[^\s()'"`,=<>!]+/
%ignore /\s+/
"""
EXPECTED = (  # terminals, and what a reader calls them; the first that fits is said
    ("OPERATOR", Message("a comparison: = != < <= > >= like, in or is null")),
    ("NAME", Message("the name of a metric, an argument or an attribute")),
    ("WORD", Message("a value")),
    ("_IN", Message("in or like")),
    ("LIKE", Message("in or like")),
    ("_NULL", Message("null")),
    ("COMMA", Message("a comma or a closing parenthesis")),
    ("RPAR", Message("and, or, or a closing parenthesis")),
    ("LPAR", Message("an opening parenthesis")),
    ("_AND", Message("and, or, or the end")),
)
END = "$END"
CLOSING = {"'": "'", '"': '"', "`": "`"}


class FilterError(Refused):
    """The expression is invalid; `column` is the position of the problem, counted from 1."""

    def __init__(self, column: int, what: Message):
        self.column, self.what = column, what
        super().__init__(Message("column %(column)s: %(problem)s", column=column, problem=what), field="filter")


class Key(NamedTuple):
    """The left side of a comparison. `kind` is the prefix of the name, such as metric, or ""."""

    kind: str
    name: str
    statistic: str
    column: int


class Literal(NamedTuple):
    """A value as written, without its quotes."""

    text: str
    quoted: bool
    column: int


class Compare(NamedTuple):
    """`operator` is one of = != < <= > >= like, ilike, in, null."""

    key: Key
    operator: str
    values: tuple[Literal, ...]


class Not(NamedTuple):
    term: Node


class All(NamedTuple):
    terms: tuple[Node, ...]


class Some(NamedTuple):
    terms: tuple[Node, ...]


Node = Compare | Not | All | Some
SAME = {"==": "=", "<>": "!="}


@v_args(inline=True)
class _Tree(Transformer):
    def start(self, node):
        return node

    def either(self, *terms):
        return Some(terms)

    def both(self, *terms):
        return All(terms)

    def negation(self, term):
        return Not(term)

    def compare(self, key, operator, value):
        operator = operator.lower()
        return Compare(key, SAME.get(operator, operator), (value,))

    def unlike(self, key, operator, value):
        return Not(Compare(key, operator.lower(), (value,)))

    def among(self, key, values):
        return Compare(key, "in", values)

    def outside(self, key, values):
        return Not(Compare(key, "in", values))

    def absent(self, key):
        return Compare(key, "null", ())

    def present(self, key):
        return Not(Compare(key, "null", ()))

    def plain(self, name):
        return _key(name, "")

    def statistic(self, function, name):
        return _key(name, function.rstrip("( \t").lower())

    def list(self, *values):
        return values

    def literal(self, token):
        if token.type == "WORD":
            return Literal(str(token), False, token.start_pos + 1)
        quote = token[0]
        return Literal(token[1:-1].replace(quote * 2, quote), True, token.start_pos + 1)


def _key(token: Token, statistic: str) -> Key:
    """Return the key of a NAME: `a.b.c`, "any text", kind."any text"."""
    kind, dot, quoted = token.partition(".")
    if token[0] in CLOSING:
        return Key("", token[1:-1], statistic, token.start_pos + 1)
    if dot and quoted[:1] in CLOSING:
        return Key(kind.lower(), quoted[1:-1], statistic, token.start_pos + 1)
    return Key("", str(token), statistic, token.start_pos + 1)


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", maybe_placeholders=False)


def parse(text: str, most_length: int = MAX_LENGTH, most_terms: int = MAX_TERMS) -> Node | None:
    """Return the tree of an expression; None for an empty one. Raises FilterError."""
    if not text.strip():
        return None
    if len(text) > most_length:
        raise FilterError(most_length, Message("a filter has at most %(limit)s characters", limit=most_length))
    odd = UNSTORABLE.search(text)
    if odd:
        raise FilterError(odd.start() + 1, Message("must be valid text"))
    _need_flat(text)
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as problem:
        raise _described(problem, text) from None
    terms = sum(1 for _ in tree.find_pred(lambda node: node.data in COMPARISONS))
    if terms > most_terms:
        raise FilterError(1, Message("a filter has at most %(limit)s comparisons", limit=most_terms))
    return _Tree().transform(tree)


COMPARISONS = {"compare", "unlike", "among", "outside", "absent", "present"}


def _need_flat(text: str) -> None:
    """Raise FilterError for parentheses and `not` that are nested too deeply to walk the tree."""
    depth = 0
    for column, letter in enumerate(text, 1):
        depth += (letter == "(") - (letter == ")")
        if depth > MAX_DEPTH:
            raise FilterError(column, Message("parentheses are nested too deeply"))
    if text.lower().count("not") > MAX_DEPTH:
        raise FilterError(1, Message("a filter has at most %(limit)s comparisons", limit=MAX_TERMS))


def _described(problem: UnexpectedInput, text: str) -> FilterError:
    """Return a message for a syntax error, and its position."""
    place = problem.pos_in_stream if isinstance(problem, UnexpectedCharacters) else None
    if place is not None and text[place] in CLOSING:
        return FilterError(place + 1, Message("this quotation mark is not closed"))
    if isinstance(problem, UnexpectedToken):
        expected = problem.accepts or problem.expected
        ended = problem.token.type == END
        column = len(text.rstrip()) + 1 if ended else problem.token.start_pos + 1
        token = "" if ended else str(problem.token)
    else:
        expected, column, ended = problem.allowed or set(), place + 1, False
        token = text[place]
    wanted = next((words for name, words in EXPECTED if name in expected), Message("the end"))
    if ended:
        return FilterError(column, Message("expected %(wanted)s, but the filter ends", wanted=wanted))
    return FilterError(column, Message("expected %(wanted)s, found %(found)s", found=token[:50], wanted=wanted))
