"""The parser of query_string, the syntax of the logs' search field: words, "phrases", field:value, AND, OR, NOT, ( ),
`*` for any characters of a word and `?` for one.

Words side by side are joined by the default operator. What is in quotation marks, and a word with punctuation in it, is
searched as it is; a quotation mark inside ends the phrase only before a space, a parenthesis or the end, so that a
pasted line with quotation marks of its own is one phrase. Text of log lines must be searchable, which rules out
luqum, a parser of Lucene's syntax: `[1] boot`, `{x}`, a lone `-` or `/` and a leading apostrophe are errors there,
`<ip>` is a range and `ok ~` a fuzzy search (docs/dependencies.md).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from kernel.messages import Message
from opnilog.scripts import words_of

from .query_tree import NUMBERS, TEXTS, And, Exists, Is, Not, Or, Pattern, Words, field_of, typed

MAX_DEPTH = 20
MAX_TOKENS = 1000
MAX_QUOTED = 50  # characters of the query that a refusal repeats
TOKEN = re.compile(
    r"\s*(?:(\()|(\))|(&&|\|\||AND\b|OR\b|NOT\b|[!+-](?=\S))"
    r'|("(?:[^"\\]|\\.|"(?![\s)]|$))*"(?=[\s)]|$)|"(?:[^"\\]|\\.)*")|((?:[^\s()"\\:]|\\.)+)(:)?)'
)
SPACE = re.compile(r"\s*")
OPERATORS = {"&&": "AND", "||": "OR", "!": "NOT", "+": "AND", "-": "NOT"}
NOT_SUPPORTED = re.compile(r"[~^/\[\]{}]")  # fuzzy search, boosts, regular expressions, ranges
SPECIAL = re.compile(r"[^\w\s]")
WILDCARD = re.compile(r"(?<!\\)(?:\\\\)*[*?]")


class Token(NamedTuple):
    """A part of the query. `kind` is `(`, `)`, AND, OR, NOT, phrase, field, word or pattern; `position` counts from
    1.
    """

    kind: str
    text: str
    source: str
    position: int

    @property
    def place(self) -> dict:
        """Return the parameters of a message about this part."""
        word = self.source.removesuffix(":")
        return {"word": word if len(word) <= MAX_QUOTED else f"{word[: MAX_QUOTED - 1]}…", "position": self.position}


def parse(text: str, fields: tuple[str, ...], operator: str) -> Any:
    """Return the tree of the query, whose words are searched in `fields` and joined by `operator`, AND or OR.

    Raises ValueError with a Message that names the word and its position in the text.
    """
    return _Parser(_tokens(text), fields, operator).read()


def _tokens(text: str) -> list[Token]:
    try:
        return _divided(text)
    except ValueError:
        if len(whole := text.strip()) > 2 and whole[0] == whole[-1] == '"':  # a pasted line in quotation marks
            return [Token("phrase", whole[1:-1], whole, 1)]
        raise


def _divided(text: str) -> list[Token]:
    tokens: list[Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        begin = SPACE.match(text, at).end()
        match = TOKEN.match(text, at)
        if len(tokens) >= MAX_TOKENS:
            raise ValueError(Message("more than %(most)s words", most=MAX_TOKENS))
        if match is None:
            raise ValueError(_unreadable(text[begin], begin + 1))
        tokens.append(_token(match, begin))
        at = match.end()
    return tokens


def _token(match: re.Match, begin: int) -> Token:
    left, right, operator, phrase, word, colon = match.groups()
    source, position = match.string[begin : match.end()], begin + 1
    if left or right:
        return Token(left or right, "", source, position)
    if operator:
        return Token(OPERATORS.get(operator, operator), "", source, position)
    if phrase is not None:
        return Token("phrase", re.sub(r'\\(["\\])', r"\1", phrase[1:-1]), source, position)
    if not colon and WILDCARD.search(word):
        literally = re.sub(r"\\(.)", lambda match: " " if match[1] in "*?" else match[1], word)
        return Token("pattern", literally, source, position)
    return Token("field" if colon else "word", re.sub(r"\\(.)", r"\1", word), source, position)


def _unreadable(character: str, position: int) -> Message:
    if character == '"':
        return Message("the quotation mark at position %(position)s is not closed", position=position)
    return Message('unexpected "%(word)s" at position %(position)s', word=character, position=position)


class _Parser:
    """Recursive descent: or > and > not > atom."""

    def __init__(self, tokens: list[Token], fields: tuple[str, ...], operator: str):
        self.tokens, self.fields, self.operator = tokens, fields, operator
        self.at = self.depth = 0

    def read(self) -> Any:
        if not self.tokens:
            raise ValueError(Message("the query is empty"))
        node = self._or()
        if self.at < len(self.tokens):
            raise self._unexpected()
        return node

    def _peek(self) -> str:
        return self.tokens[self.at].kind if self.at < len(self.tokens) else ""

    def _take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _unexpected(self) -> ValueError:
        """Return the error for the next token, or for the end of the query."""
        if self.at < len(self.tokens):
            return ValueError(Message('unexpected "%(word)s" at position %(position)s', **self.tokens[self.at].place))
        last = self.tokens[-1]
        return ValueError(Message('expected a search term after "%(word)s" at position %(position)s', **last.place))

    def _or(self) -> Any:
        parts = [self._and()]
        while self._peek() not in {"", ")"}:
            if self._peek() == "OR":
                self.at += 1
            elif self.operator == "AND":
                break
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self) -> Any:
        parts = [self._not()]
        while True:
            if self._peek() == "AND":
                self.at += 1
            elif self.operator != "AND" or self._peek() in {"", ")", "OR"}:
                break
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _not(self) -> Any:
        if self._peek() == "NOT":
            with self._inside(self._take()):
                return Not(self._not())
        return self._atom(self.fields)

    @contextlib.contextmanager
    def _inside(self, token: Token) -> Iterator[None]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(Message("nested too deeply at position %(position)s", position=token.position))
        yield
        self.depth -= 1

    def _atom(self, fields: tuple[str, ...]) -> Any:
        if self._peek() in {"", ")", "AND", "OR"}:
            raise self._unexpected()
        token = self._take()
        if token.kind == "(":
            return self._group(token, fields)
        if token.kind == "field":
            with self._inside(token):
                if token.text == "_exists_":
                    return Exists(_field(self._field_name()))
                return self._atom((_field(token),))
        if token.kind in {"word", "pattern"} and NOT_SUPPORTED.search(token.text):
            raise ValueError(
                Message(
                    '"%(word)s" at position %(position)s: ranges, regular expressions and fuzzy search are not'
                    " supported; put quotation marks around a text",
                    **token.place,
                )
            )
        if token.kind == "pattern":
            return _pattern(token, fields)
        parts = [Is(name, (_value(name, token),)) for name in fields if name not in TEXTS]
        texts = tuple(name for name in fields if name in TEXTS)
        if texts:
            as_it_is = SPECIAL.search(token.text) is not None
            parts.append(Words(texts, words_of(token.text), token.text, as_it_is))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _group(self, opening: Token, fields: tuple[str, ...]) -> Any:
        outer, self.fields = self.fields, fields
        with self._inside(opening):
            node = self._or()
        self.fields = outer
        if self._peek() != ")":
            position = opening.position
            raise ValueError(Message("the parenthesis at position %(position)s is not closed", position=position))
        self.at += 1
        return node

    def _field_name(self) -> Token:
        if self._peek() not in {"word", "phrase"}:
            raise self._unexpected()
        return self._take()


def _pattern(token: Token, fields: tuple[str, ...]) -> Any:
    if not token.text.strip("*"):
        return Or(tuple(Exists(name) for name in fields))
    if numeric := next((name for name in fields if name in NUMBERS), None):
        _value(numeric, token)  # which is none
    texts = tuple(name for name in fields if name in TEXTS)
    parts = [Pattern((name,), token.text) for name in fields if name not in TEXTS]
    if texts:
        parts.append(Pattern(texts, token.text))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _field(token: Token) -> str:
    try:
        return field_of(token.text)
    except ValueError:
        problem = Message(
            'unknown field "%(word)s" at position %(position)s; put quotation marks around a text with a colon',
            **token.place,
        )
        raise ValueError(problem) from None


def _value(field: str, token: Token) -> Any:
    try:
        return typed(field, token.text)
    except ValueError:
        problem = Message(
            'the field %(field)s needs a number, not "%(word)s" at position %(position)s', field=field, **token.place
        )
        raise ValueError(problem) from None
