"""YAML that users send, as the JSON of the same content: plain values only, refusals name the line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml
from rest_framework.parsers import BaseParser

from .errors import Refused
from .messages import Message
from .sanitize import MAX_VALUES

MAX_BYTES = 1 << 20


class _Loader(yaml.SafeLoader):
    """Refuses duplicate names, and aliases: with them a short text can expand to gigabytes."""

    def compose_node(self, parent, index):
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=self.peek_event().start_mark)
        if getattr(self.peek_event(), "anchor", None):  # the text `&x` would be left out without a word
            raise yaml.MarkedYAMLError(problem="anchors are not allowed", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _value in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise yaml.MarkedYAMLError(problem="a name must be a text", problem_mark=key.start_mark)
            if name in seen:
                raise yaml.MarkedYAMLError(problem=f"{name[:100]} is given twice", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


# The core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema). PyYAML's own is that of YAML 1.1, where
# 12:30 is 750, 010 is 8, 1_000 is 1000 and `on` is true; dates and merge keys are texts here, too.
SCHEMA = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
}
_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in SCHEMA.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), _first)


def _int(loader: _Loader, node) -> int:
    return _number(loader, node, "int", lambda text: int(text, {"0o": 8, "0x": 16}.get(text[:2].lower(), 10)))


def _float(loader: _Loader, node) -> float:
    return _number(loader, node, "float", lambda text: float(re.sub(r"\.(?=inf|nan)", "", text.lower())))


def _bool(loader: _Loader, node) -> bool:
    return _number(loader, node, "bool", lambda text: text.lower() == "true")


def _number(loader: _Loader, node, kind: str, convert: Callable[[str], Any]):
    """Return the value of a scalar; a tag such as !!int may stand before any text."""
    text = loader.construct_scalar(node)
    if not re.fullmatch(SCHEMA[kind][0] + ("|" + SCHEMA["int"][0] if kind == "float" else ""), text):
        raise yaml.MarkedYAMLError(problem=f"{text[:100]} is not valid for !!{kind}", problem_mark=node.start_mark)
    return convert(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor("tag:yaml.org,2002:bool", _bool)


def read(text: str, field: str = "yaml") -> dict:
    """Return the mapping that a YAML text is. Raises Refused."""
    try:
        data = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise Refused(
            "line %(line)s, column %(column)s: %(problem)s",
            field=field,
            line=mark.line + 1 if mark else 1,
            column=mark.column + 1 if mark else 1,
            problem=_what_to_write(problem, *((text[: mark.index], text[mark.index :]) if mark else ("", ""))),
        )
    except yaml.reader.ReaderError as problem:
        raise Refused(
            "is not valid YAML: the character %(character)s is not allowed",
            field=field,
            character=f"U+{int(problem.character):04X}",
        )
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as problem:
        raise Refused("is not valid YAML: %(problem)s", field=field, problem=str(problem)[:200])
    if isinstance(data, str) and re.match(r"\s*[\w-]+:\S", data):
        raise Refused("must be a YAML mapping: write a blank after the colon, as in name: value", field=field)
    if not isinstance(data, dict):
        raise Refused("must be a YAML mapping", field=field)
    _need_plain(data, field)
    return data


# --- what is wrong, as what to write ----------------------------------------------------------------------------------
WORDS = (  # what PyYAML says, and what we do
    (r"aliases are not", Message("aliases are not allowed; a text that begins with * must be in quotation marks")),
    (r"anchors are not", Message("anchors are not allowed; a text that begins with & must be in quotation marks")),
    (r"found character '\\t'", Message("indent with blanks, not with tabs")),
    (r"mapping values are not allowed", Message("a text with a colon and a blank must be in quotation marks")),
    (r"sequence entries are not allowed", Message("a list begins on a line of its own, or is written [a, b]")),
    (r"could not find expected ':'", Message("a colon and a blank must follow the name, as in name: value")),
    (r"found unexpected end of stream", Message("the quotation mark is not closed")),
    (r"chomping|mapping keys", Message("a text that begins with |, > or ? must be in quotation marks")),
    (r"expected ',' or '\]'", Message("a comma or the closing ] of the list is missing")),
    (r"expected ',' or '}'", Message("a comma or the closing } of the object is missing")),
    (r"expected <block end>", Message("the indentation does not fit the lines above")),
    (r"unknown escape|hexadecimal", Message("in double quotation marks a backslash is written twice")),
    (r"another document|document separator|document start", Message("there must be one document, without --- inside")),
    (r"constructor for the tag|tag handle", Message("tags such as !name are not allowed")),
    (r"unhashable|a name must be a text", Message("a name must be a text; put any other in quotation marks")),
)


def _what_to_write(problem: yaml.MarkedYAMLError, before: str, after: str) -> str:
    """Return PyYAML's problem in words that tell the author what to write; the text is that around the problem."""
    said = problem.problem or problem.context or ""
    # PyYAML ends a text in a flow mapping where YAML 1.2 goes on with it: `is it ready?`.
    goes_on = after[:1] == "?" or (after[:1] in "{[" and before[-1:] not in " \n,[]{}\"':")
    if goes_on and re.search(r"expected ',' or '[]}]'", said):
        return Message("within { } or [ ] a text with %(character)s must be in quotation marks", character=after[:1])
    if said.startswith("a name must") and before.rstrip().endswith("?"):
        return Message("a text that begins with %(character)s must be in quotation marks", character="?")
    for pattern, words in WORDS:
        if re.search(pattern, said):
            return words
    for kind, character in {"an alias": "*", "an anchor": "&", "a tag": "!", "a directive": "%"}.items():
        if kind in (problem.context or ""):
            return Message("a text that begins with %(character)s must be in quotation marks", character=character)
    if match := re.search(r"found character '(.+)' that cannot start|but found '([?-])'", said):
        character = match[1] or match[2]
        return Message("a text that begins with %(character)s must be in quotation marks", character=character)
    return said


class _Dumper(yaml.SafeDumper):
    """Puts in quotation marks what either YAML 1.1 or 1.2 would not read as a text, and writes no aliases."""

    def ignore_aliases(self, data) -> bool:
        return True


_Dumper.yaml_implicit_resolvers = {key: list(rules) for key, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()}
for _name, (_pattern, _first) in SCHEMA.items():
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), _first)


def write(data: dict) -> str:
    """Return YAML that `read` returns as it is given here."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def _need_plain(data: dict, field: str) -> None:
    """Raise Refused for values that JSON does not have, such as binary ones, and for too many of them."""
    left, count = [data], 0
    while left:
        value = left.pop()
        count += 1
        if count > MAX_VALUES:
            raise Refused("must have at most %(limit)s values", field=field, limit=MAX_VALUES)
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif value is not None and not isinstance(value, str | int | float):
            raise Refused("must have plain values only, no %(kind)s", field=field, kind=type(value).__name__)


class YamlParser(BaseParser):
    """Reads a request body of the type application/yaml."""

    media_type = "application/yaml"

    def parse(self, stream, media_type=None, parser_context=None):
        body = stream.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise Refused("must have at most %(limit)s bytes", field="body", limit=MAX_BYTES)
        try:
            return read(body.decode(), "body")
        except UnicodeDecodeError:
            raise Refused("must be UTF-8", field="body")
