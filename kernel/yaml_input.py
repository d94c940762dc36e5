"""YAML that users send, as the JSON of the same content: plain values only, refusals name the line and column."""

from __future__ import annotations

import re

import yaml
from rest_framework.parsers import BaseParser

from .errors import Refused
from .sanitize import MOST_VALUES

MOST_BYTES = 1 << 20
TIMESTAMP, BOOL = "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """Refuses duplicate names, and aliases: with them a short text can expand to gigabytes."""

    def compose_node(self, parent, index):
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=self.peek_event().start_mark)
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


# Dates stay texts; on, off, yes and no are texts, as in YAML 1.2; 1e-4 is a number.
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag not in (TIMESTAMP, BOOL)]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(BOOL, re.compile("^(?:true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


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
            problem=problem.problem or problem.context or "",
        )
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as problem:
        raise Refused("is not valid YAML: %(problem)s", field=field, problem=str(problem)[:200])
    if not isinstance(data, dict):
        raise Refused("must be a YAML mapping", field=field)
    _need_plain(data, field)
    return data


def _need_plain(data: dict, field: str) -> None:
    """Raise Refused for values that JSON does not have, such as binary ones, and for too many of them."""
    left, count = [data], 0
    while left:
        value = left.pop()
        count += 1
        if count > MOST_VALUES:
            raise Refused("must have at most %(limit)s values", field=field, limit=MOST_VALUES)
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
        body = stream.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise Refused("must have at most %(limit)s bytes", field="body", limit=MOST_BYTES)
        try:
            return read(body.decode(), "body")
        except UnicodeDecodeError:
            raise Refused("must be UTF-8", field="body")
