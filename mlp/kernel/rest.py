"""JSON in and JSON out, whatever the headers say. Named in settings, so it must not import DRF's views."""

from __future__ import annotations

import json

from rest_framework.exceptions import ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer

PAGE_LIMIT = 1000


class StrictJSONParser(JSONParser):
    """UTF-8 whatever the charset parameter says; no NaN, no Infinity, no bottomless nesting."""

    media_type = "application/json"

    def parse(self, stream, media_type=None, parser_context=None):
        try:
            return json.loads(stream.read().decode("utf-8"), parse_constant=self._no_constant)
        except (ValueError, RecursionError):
            raise ParseError("body: not valid JSON")

    @staticmethod
    def _no_constant(text: str):
        raise ValueError(f"{text} is no JSON")


class PlainJSONRenderer(JSONRenderer):
    """JSON whatever the Accept header says."""

    ensure_ascii = False


class AlwaysJSON(BaseContentNegotiation):
    def select_parser(self, request, parsers):
        # No content type at all is taken as JSON: the contract knows no other.
        given = (request.content_type or "application/json").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == given), None)

    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type
