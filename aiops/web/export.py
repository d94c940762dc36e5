"""The export of a search as NDJSON or CSV: over REST, and as a download of the page of log lines.

Lines are read and sent in pages, so that memory does not grow with their number; the first page is read before the
answer begins, so that a wrong filter or a log store that is unavailable is still an answer of its own. For each page it
is asked again which lines the user may see.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, StreamingHttpResponse
from django.views.decorators.http import require_GET

from accounts.models import User
from aiops import logstore
from aiops.judging import log_search, severity
from kernel import spreadsheets
from kernel.effects import READ
from kernel.errors import Fault, Refused
from kernel.messages import translate
from kernel.views import Call, ContractView

from .logs_api import FILTERS
from .logs_serializers import shown

PAGE = 1000  # lines that are read at a time
NDJSON, CSV = "application/x-ndjson", "text/csv"
FORMATS = {"ndjson": NDJSON, "csv": CSV}
NAMES = (*(name for name, _kind, _words in FILTERS), "template")
COLUMNS = (
    "time", "verdict", "severity", "cluster", "namespace", "deployment", "pod", "service", "line", "template",
    "confidence", "trace_id", "span_id", "attributes", "id",
)  # fmt: skip
UTF8 = "; charset=utf-8"


class Export(ContractView):
    """The newest lines that match, at most `MLP_AIOPS_EXPORT_LINES`; older ones with `until`."""

    kind = "log"
    accepted = frozenset({"user", "service"})
    calls = {
        "GET": Call(
            "Export stored lines, newest first",
            READ,
            media=tuple(FORMATS.values()),
            query=(("format", {"type": "string", "enum": list(FORMATS)}, "default: ndjson"), *FILTERS),
        )
    }

    def get(self, request):
        given = {name: value for name, value in request.query_params.items() if name in NAMES and value}
        return answer(request.user, given, request.query_params.get("format", "ndjson"))


@login_required
@require_GET
def download(request):
    """Send the lines that match the filters in the address, as the page of log lines has them."""
    given = {name: request.GET[name] for name in NAMES if request.GET.get(name)}
    try:
        return answer(request.user, given, request.GET.get("format", "csv"))
    except Refused as refusal:
        return HttpResponse(translate(refusal.msg), status=403, content_type="text/plain; charset=utf-8")
    except Fault as fault:
        return HttpResponse(translate(fault.msg), status=503, content_type="text/plain; charset=utf-8")


def answer(user: User, given: dict[str, str], form: str) -> StreamingHttpResponse:
    """Return the export as a response. Raises Refused for a wrong filter or format, Fault when the store is down."""
    if form not in FORMATS:
        raise Refused("must be one of %(choices)s", field="format", choices=", ".join(FORMATS))
    pages = _pages(user, given)
    first = next(pages)
    write = _csv if form == "csv" else _ndjson
    response = StreamingHttpResponse(write(first, pages), content_type=FORMATS[form] + UTF8)
    response["Content-Disposition"] = f'attachment; filename="log-lines.{form}"'
    response["X-Line-Limit"] = str(settings.AIOPS_EXPORT_LINES)
    response["X-Accel-Buffering"] = "no"
    return response


def _pages(user: User, given: dict[str, str]) -> Iterator[list[dict]]:
    """Yield pages of lines, one at least."""
    left, after = settings.AIOPS_EXPORT_LINES, None
    reader = user
    while left > 0:
        rows, after = logstore.get().search(log_search.body(reader, **given), min(PAGE, left), after)
        yield rows
        left -= len(rows)
        if after is None:
            return
        reader = User.objects.filter(pk=user.pk).first()
        if reader is None or not reader.is_active:
            return


def _ndjson(first: list[dict], pages: Iterator[list[dict]]) -> Iterator[str]:
    yield _objects(first)
    for rows in pages:
        yield _objects(rows)


def _objects(rows: list[dict]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in shown(rows))


def _csv(first: list[dict], pages: Iterator[list[dict]]) -> Iterator[str]:
    yield spreadsheets.MARK + spreadsheets.part([COLUMNS])
    yield spreadsheets.part(map(_cells, first))
    for rows in pages:
        yield spreadsheets.part(map(_cells, rows))


def _cells(row: dict) -> list:
    attributes = row.get("attributes") or {}
    confidence = row.get("opnilog_confidence")
    return [
        datetime.fromtimestamp(row["time"] / 1000, UTC).isoformat(timespec="milliseconds"),
        row.get("anomaly_level") or "",
        severity.severity_of(attributes)[1],
        *(row.get(name) or "" for name in ("cluster_id", "namespace_name", "deployment", "pod_name", "service", "log")),
        row.get("template_matched") or "",
        "" if confidence is None else confidence,
        *(attributes.get(name, "") for name in ("trace_id", "span_id")),
        json.dumps(attributes, ensure_ascii=False) if attributes else "",
        row["_id"],
    ]
