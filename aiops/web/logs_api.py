"""REST on log lines: store and search them. A user's are those of the namespace with the user's name.

A POST of many lines stores all that have any content, and names those that were odd or have none: a shipper would drop
a batch that is refused for one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rest_framework.parsers import BaseParser
from rest_framework.response import Response

from aiops import logstore
from aiops.intake import accept, bodies, quota
from aiops.judging import log_search
from kernel.effects import READ
from kernel.errors import Refused, writable
from kernel.messages import Message, translate
from kernel.otlp import coding
from kernel.views import Call, ContractView, query_int, whole

from . import odd_lines
from .logs_serializers import LineIn, LineOut, TakenOut, document, shown, usual

CHUNK = 5000  # lines that are stored at a time
SHOWN = 100  # lines that an answer names
MAX_OFFSET = 9000
MAX_COUNTED = 10_000  # of the lines that match words or a template
FILTERS = (
    ("cluster", str, "cluster"),
    ("namespace", str, "namespace: a username, or platform"),
    ("deployment", str, "job, application or component"),
    ("level", {"type": "string", "enum": ["", *log_search.LEVELS]}, "Normal or Anomaly"),
    (
        "q",
        {"type": "string", "maxLength": log_search.MAX_Q},
        "words, AND, OR, NOT, “phrases”; at most 1000 characters",
    ),
    ("severity", str, "error, warning, info or debug with the names that senders use for it; or exactly this text"),
    ("trace", str, "trace id"),
    ("span", str, "span id"),
    ("attribute", str, "name=value of an attribute or label; or a name that the line must have"),
    ("since", whole(0, log_search.LATEST), "ms since 1970"),
    ("until", whole(0, log_search.LATEST), "ms since 1970"),
)


def _unpacked(stream, parser_context) -> bytes:
    return bodies.unpacked(stream.read(), parser_context["request"].headers.get("Content-Encoding", ""))


class NdjsonParser(BaseParser):
    """A parser for one JSON object a line: (number, value) of each, Refused as the value of one that is none."""

    media_type = "application/x-ndjson"

    def parse(self, stream, media_type=None, parser_context=None):
        return bodies.lines(_unpacked(stream, parser_context))


class ElementsParser(BaseParser):
    """A parser for one JSON object or an array of them: (number, value) of each."""

    media_type = "application/json"

    def parse(self, stream, media_type=None, parser_context=None):
        return bodies.elements(_unpacked(stream, parser_context))


class Odd:
    """What an answer says of lines that were not stored, or not as they were sent."""

    def __init__(self) -> None:
        self.refused = self.changed = 0
        self.first: list[tuple[int, Message, bool]] = []

    def add(self, number: int, problem: Message, stored: bool) -> None:
        self.refused += not stored
        self.changed += stored
        if len(self.first) < SHOWN:
            self.first.append((number, problem, stored))

    def answer(self) -> dict:
        counts = {name: count for name in ("refused", "changed") if (count := getattr(self, name))}
        problems = [
            {"line": number, "msg": writable(translate(problem)), **({"stored": True} if stored else {})}
            for number, problem, stored in sorted(self.first, key=lambda entry: entry[0])
        ]
        return {**counts, "problems": problems} if problems else counts


class Logs(ContractView):
    """Lines are stored before the response is sent, and classified afterwards if their workload is watched."""

    kind = "log"
    accepted = frozenset({"user", "service"})
    parser_classes = [ElementsParser, NdjsonParser]
    calls = {
        "POST": Call("Ingest log lines", body=LineIn, out=TakenOut, one_or_many=True),
        "GET": Call(
            "List stored lines, newest first", READ, out=LineOut, many=True, query=FILTERS, most_offset=MAX_OFFSET
        ),
    }

    def handle_exception(self, exc):
        response = super().handle_exception(exc)
        if isinstance(exc, Refused) and exc.field == bodies.CODING:
            response["Accept-Encoding"] = coding.ACCEPTED
        return response

    def post(self, request):
        quota.require(request.user)
        given = request.data  # without a body there is no parser, and it is an empty form
        rows, taken, new, total = given if isinstance(given, Iterator) else iter([(1, {})]), 0, 0, 0
        odd = Odd()
        # Lines without ids would be there twice when a body that was refused in its middle is sent again.
        with logstore.get().all_or_nothing():
            while chunk := list(islice(rows, CHUNK)):
                lines = list(self._good(chunk, odd))
                total += len(chunk)
                taken += len(lines)
                quota.count(request.user, lines)
                new += accept.store(lines)
        if odd.refused and not taken:
            number, problem, _stored = odd.first[0]
            raise Refused(problem if total == 1 else Message("line %(n)s: %(problem)s", n=number, problem=problem))
        return Response({"taken": taken, "new": new, **odd.answer()})

    def _good(self, chunk: list, odd: Odd) -> Iterator[dict]:
        """Yield the documents of the lines that can be stored; add the number and the fault of each other."""
        named: list[tuple[int, dict, Message | None]] = []
        for number, data in chunk:
            try:
                if isinstance(data, Refused):
                    raise data
                row, changed = usual(data), None
                if row is None:
                    row, changed = odd_lines.read(data)
                line = document(row, self.request.user)
            except Refused as problem:
                odd.add(number, problem.msg, False)
                continue
            if row.get("_id") and self.request.user.is_administrator:
                named.append((number, line, changed))
            else:
                if changed:
                    odd.add(number, changed, True)
                yield line
        foreign = accept.foreign_ids([line for _number, line, _changed in named]) if named else {}
        for place, (number, line, changed) in enumerate(named):
            if place in foreign:
                odd.add(number, foreign[place].msg, False)
                continue
            if changed:
                odd.add(number, changed, True)
            yield line

    def get(self, request):
        given = {name: request.query_params[name] for name, _, _ in FILTERS if name in request.query_params}
        for name in ("since", "until"):
            if given.get(name) == "":
                raise Refused("must be a whole number of milliseconds since 1970", field=name)
        limit = query_int(request, "limit", 100, 1, 1000)
        offset = query_int(request, "offset", 0, 0, MAX_OFFSET)
        body = log_search.body(request.user, **given)
        rows, more = logstore.get().search(body, offset + limit)
        out = LineOut(shown(rows[offset:]), many=True).data
        lines, exact = (len(rows), True) if more is None else logstore.get().count_up_to(body, MAX_COUNTED)
        headers = {"X-Total-Count": str(lines)}
        if not exact:
            headers["X-Total-Count-At-Least"] = "true"
        if more is not None and len(rows) < offset + limit:  # older lines: with this as `until`
            headers["X-Searched-Since"] = str(more[0])
        return Response(out, headers=headers)
