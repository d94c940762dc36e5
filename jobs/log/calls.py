"""The REST calls for a log by line, the same for jobs and applications."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Model
from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.response import Response

from jobs.logs import followed
from kernel.effects import READ
from kernel.errors import Refused
from kernel.textlog import reading
from kernel.textlog.files import LogFile
from kernel.textlog.search import MAX_Q, Wanted
from kernel.views import Call, query_int, whole

from .follow import MEDIA, LineFollower

MAX_LINES, MAX_HITS = 1000, 20_000
FLAG = whole(0, 1)
SEARCHED = (
    ("q", {"type": "string", "minLength": 1, "maxLength": MAX_Q}, "text to search, at most 1000 characters"),
    ("regex", FLAG, "1: `q` is a regular expression (RE2)"),
    ("case", FLAG, "1: capital letters matter"),
    ("errors", FLAG, "1: lines that look like errors, instead of `q`"),
)


class LogRowOut(serializers.Serializer):
    line = serializers.IntegerField(help_text="number of the line, from 1")
    offset = serializers.IntegerField(help_text="where it begins in the log, in bytes")
    at = serializers.DateTimeField(allow_null=True, help_text="when it was written, where that is known")
    text = serializers.CharField(help_text="as a terminal shows it, without control characters")
    styles = serializers.ListField(
        child=serializers.ListField(), required=False, help_text="[from, to, names] of styled parts, in characters"
    )
    hits = serializers.ListField(
        child=serializers.ListField(), required=False, help_text="[from, to] of what `q` matches, in characters"
    )
    cut = serializers.IntegerField(required=False, help_text="bytes left out of a long line")


class LogLinesOut(serializers.Serializer):
    total = serializers.IntegerField(help_text="lines of the log")
    size = serializers.IntegerField(help_text="bytes of the log")
    rows = LogRowOut(many=True)


class LogHitsOut(serializers.Serializer):
    total = serializers.IntegerField(help_text="lines of the log")
    lines = serializers.ListField(child=serializers.IntegerField(), help_text="numbers of the lines that match")
    next = serializers.IntegerField(allow_null=True, help_text="`first` of the next call; null at the end of the log")


LINES = Call(
    "Get lines of the log",
    READ,
    out=LogLinesOut,
    stream=MEDIA,
    query=(
        ("first", whole(1), "number of the first line; without it the last lines"),
        ("limit", whole(1, MAX_LINES), "lines at most, 1 to 1000; default 200"),
        ("follow", FLAG, "1: stream new lines, one JSON object a line (empty: nothing new), until the run ends"),
        ("every", whole(0, 60), "with follow: seconds between two objects at least"),
        *SEARCHED,
    ),
)
HITS = Call(
    "Search the log",
    READ,
    out=LogHitsOut,
    query=(
        ("first", whole(1), "line to search from; default 1"),
        ("limit", whole(1, MAX_HITS), "lines at most, 1 to 20000; default 1000"),
        *SEARCHED,
    ),
)


def wanted_of(request) -> Wanted | None:
    """Return the search of a call; None if it has none. Raises Refused."""
    flags = {name: bool(query_int(request, name, 0, 0, 1)) for name in ("regex", "case", "errors")}
    given = request.query_params.get("q")
    if given is None and not flags["errors"]:
        return None
    if given == "":
        raise Refused("must have %(low)s to %(high)s characters", field="q", low=1, high=MAX_Q)
    return Wanted(given or "", **flags)


def answer_lines(request, log: LogFile, row: Model, over: Callable[[], bool]) -> HttpResponse:
    """Answer a call for lines."""
    first = query_int(request, "first", 0, 1)
    limit = query_int(request, "limit", 200, 1, MAX_LINES)
    every = query_int(request, "every", 0, 0, 60)
    wanted = wanted_of(request)
    if query_int(request, "follow", 0, 0, 1):
        reader = LineFollower(log, over, first, limit, every, wanted)
        return followed(request._request, row, reader, MEDIA)
    return Response(reading.lines(log, first or None, limit, wanted))


def answer_hits(request, log: LogFile) -> HttpResponse:
    """Answer a search."""
    first = query_int(request, "first", 1, 1)
    limit = query_int(request, "limit", 1000, 1, MAX_HITS)
    wanted = wanted_of(request)
    if wanted is None:
        raise Refused("must have %(low)s to %(high)s characters", field="q", low=1, high=MAX_Q)
    return Response(reading.hits(log, wanted, first, limit))
