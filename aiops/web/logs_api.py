"""REST on log lines: store and search them. A user's are those of the namespace with the user's name."""

from __future__ import annotations

from rest_framework.parsers import BaseParser
from rest_framework.response import Response

from aiops import logstore
from aiops.intake import accept
from aiops.judging import log_search
from kernel.errors import Refused
from kernel.rest import StrictJSONParser, read_json
from kernel.views import Call, ContractView, query_int, whole

from .logs_serializers import LineIn, LineOut, TakenOut, shown

MOST = 10_000
MOST_OFFSET = 9000
FILTERS = (
    ("cluster", str, "cluster"),
    ("namespace", str, "namespace: a username, or platform"),
    ("deployment", str, "job, application or component"),
    ("level", {"type": "string", "enum": ["", *log_search.LEVELS]}, "Normal or Anomaly"),
    (
        "q",
        {"type": "string", "maxLength": log_search.MOST_Q},
        "words, AND, OR, NOT, “phrases”; at most 1000 characters",
    ),
    ("since", whole(0, log_search.LATEST), "ms since 1970"),
    ("until", whole(0, log_search.LATEST), "ms since 1970"),
)


class NdjsonParser(BaseParser):
    """A parser for one JSON object a line."""

    media_type = "application/x-ndjson"

    def parse(self, stream, media_type=None, parser_context=None):
        rows = []
        for number, text in enumerate(stream.read().split(b"\n"), start=1):
            if text.strip():
                try:
                    rows.append(read_json(text))
                except (ValueError, RecursionError):
                    raise Refused("line %(number)s is not valid JSON", field="body", number=number)
        return rows


class Logs(ContractView):
    """Lines are stored before the response is sent, and classified afterwards if their workload is watched."""

    kind = "log"
    accepted = frozenset({"user", "service"})
    parser_classes = [StrictJSONParser, NdjsonParser]
    calls = {
        "POST": Call("Ingest log lines", body=LineIn, out=TakenOut, one_or_many=True),
        "GET": Call("List stored lines, newest first", out=LineOut, many=True, query=FILTERS, most_offset=MOST_OFFSET),
    }

    def post(self, request):
        given = request.data if isinstance(request.data, list) else [request.data]
        if len(given) > MOST:
            raise Refused("must have at most %(limit)s elements", field="body", limit=MOST)
        rows = LineIn.read_many(given)
        lines = [self._line(one) for one in rows]
        named = [line for line, row in zip(lines, rows, strict=True) if row.get("_id")]
        if named and request.user.is_staff:
            accept.check_ids(named)
        return self.answer({"taken": len(lines), "new": accept.store(lines)})

    def _line(self, row: dict) -> dict:
        user = self.request.user
        namespace = row.get("namespace_name", user.username)
        if namespace != user.username and not user.is_staff:
            raise Refused("must be your own user name", field="namespace_name")
        cluster = row.get("cluster_id", accept.LOCAL)
        if cluster != accept.LOCAL and not user.is_staff:
            raise Refused("only administrators can send lines of other clusters", field="cluster_id")
        id = row.get("_id", "")
        return accept.line(
            row["log"],
            id=id if user.is_staff or not id else accept.id_of(user.username, id),
            cluster=cluster,
            namespace=namespace,
            deployment=row.get("deployment", ""),
            pod=row.get("pod_name", ""),
            service=row.get("service", ""),
            kind=row.get("log_type", "workload"),
            at_ms=row.get("time"),
        )

    def get(self, request):
        given = {name: request.query_params[name] for name, _, _ in FILTERS if name in request.query_params}
        for name in ("since", "until"):
            if given.get(name) == "":
                raise Refused("must be a whole number of milliseconds since 1970", field=name)
        limit = query_int(request, "limit", 100, 1, 1000)
        offset = query_int(request, "offset", 0, 0, MOST_OFFSET)
        body = log_search.body(request.user, **given)
        rows, _more = logstore.get().search(body, offset + limit)
        out = LineOut([shown(row) for row in rows[offset:]], many=True).data
        return Response(out, headers={"X-Total-Count": str(logstore.get().count(body))})
