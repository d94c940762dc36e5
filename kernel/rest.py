"""JSON in and JSON out, whatever the headers say. Named in settings, so it must not import DRF's views."""

from __future__ import annotations

import json
import re

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer

from .errors import Refused, writable
from .sanitize import MAX_VALUES, TooManyValues, check_count, no_constant

PAGE_LIMIT = 1000
HALF = re.compile("[\ud800-\udfff]")  # a lone surrogate: only an escape can contain one, and it cannot be encoded
HALF_ESCAPED = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(data: bytes, parse_constant=no_constant):
    """Return the value of a JSON body.

    Raises Refused naming the field with text that cannot be encoded; ValueError or RecursionError for anything but
    JSON in UTF-8 with finite numbers and bounded nesting.
    """
    try:
        check_count(data)
    except TooManyValues:
        raise Refused("must have at most %(limit)s values", field="body", limit=MAX_VALUES) from None
    value = json.loads(data.decode("utf-8"), parse_constant=parse_constant)
    if HALF_ESCAPED.search(data):
        _refuse_halves(value)
    return value


def _refuse_halves(value) -> None:
    left = [("", value)]  # (the field of the body, what is in it)
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                left += [(name or key, key), (name or key, inner)]
        elif isinstance(value, list):
            left += [(name, inner) for inner in value]
        elif isinstance(value, str) and HALF.search(value):
            raise Refused("must be valid text", field=writable(name or "body"))


class StrictJSONParser(JSONParser):
    """A parser that reads UTF-8 whatever the charset says, and refuses NaN, Infinity, deep nesting and lone surrogates.

    A view with `reads_nan` gets NaN and infinities; its serializer accepts them or refuses them by name.
    """

    media_type = "application/json"

    def parse(self, stream, media_type=None, parser_context=None):
        try:
            lenient = getattr((parser_context or {}).get("view"), "reads_nan", False)
            return read_json(stream.read(), float if lenient else no_constant)
        except (ValueError, RecursionError):
            raise Refused("not valid JSON", field="body")


class PlainJSONRenderer(JSONRenderer):
    """A renderer that writes JSON whatever the Accept header says."""

    ensure_ascii = False


class AlwaysJSON(BaseContentNegotiation):
    def select_parser(self, request, parsers):
        # A missing content type means JSON: the contract has no other.
        given = (request.content_type or "application/json").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == given), None)

    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type
