"""Fragments of other apps' pages about the anomalies in a user's own logs: fetched by htmx, empty when there are none.

Jobs and applications are workloads of the cluster `local`, of the user's namespace and their own name
(aiops/intake/follow.py); a page needs to know no more of AIOps than the address of such a fragment.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import render
from django.views.decorators.http import require_GET

from aiops import logstore
from aiops.intake import accept, follow
from aiops.judging import log_search
from kernel import names, storage
from kernel.errors import Fault, Refused
from kernel.textlog import reading
from kernel.textlog.files import LogFile

SHOWN = 5
MARKED = 200  # workloads
MAX_COUNTED = 10_000
IN_A_LOG = 500  # anomalies marked in one log
WITHIN_MS = 7 * 86_400_000


def _body(request, **names) -> dict:
    """Return the query for anomalies of the user's own workloads in the last week; `since` in the address may only
    shorten it.
    """
    oldest = int(time.time() * 1000) - WITHIN_MS
    given = request.GET.get("since", "")
    since = max(oldest, int(given)) if given.isascii() and given.isdigit() and len(given) < 16 else oldest
    own = {"cluster": accept.LOCAL, "namespace": request.user.username, **names}
    return log_search.body(request.user, level="Anomaly", since=str(since), **own)


@login_required
@require_GET
def part(request):
    """Show the newest anomalies of one workload (`deployment`), or of all of the user's."""
    deployment = request.GET.get("deployment", "")[:253]
    context = {"deployment": deployment, "rows": [], "count": 0}
    try:
        body = _body(request, deployment=deployment)
        rows, more = logstore.get().search(body, SHOWN)
        context["rows"] = [
            {**row, "id": row["_id"], "at": datetime.fromtimestamp(row["time"] / 1000, UTC)} for row in rows
        ]
        context["count"] = logstore.get().count_up_to(body, MAX_COUNTED)[0] if more is not None else len(rows)
    except (Fault, Refused):
        context["away"] = True
    return render(request, "aiops/part.html", context)


@login_required
@require_GET
def log_lines(request):
    """Show the newest anomalies of one log (`kind`: jobs or apps; `deployment`) with the numbers of their lines."""
    kind, name = request.GET.get("kind", ""), request.GET.get("deployment", "")[:253]
    if kind not in follow.RUNS or not re.fullmatch(names.NAME, name):
        raise Http404
    context = {"rows": []}
    try:
        rows, _more = logstore.get().search(_body(request, deployment=name), IN_A_LOG)
    except (Fault, Refused):
        return render(request, "aiops/log_lines.html", {**context, "away": True})
    log = LogFile(storage.root() / kind / request.user.username / name, f"log/{follow.RUNS[kind]}")
    places = follow.offsets(log.base / log.path, [row["_id"] for row in rows])
    numbers = dict(zip(places, reading.line_numbers(log, list(places.values())), strict=True))
    lines = [
        {"id": row["_id"], "log": row["log"], "line": numbers[row["_id"]]} for row in rows if row["_id"] in numbers
    ]
    return render(request, "aiops/log_lines.html", {"rows": sorted(lines, key=lambda row: row["line"])})


@login_required
@require_GET
def marks(request):
    """Return how many anomalies each workload of a list has, to be inserted at `data-mark="NAME"`."""
    try:
        rows = logstore.get().by_workload(_body(request), MARKED)
    except (Fault, Refused):
        rows = []
    rows = [{"name": row[2], "anomalies": row[3]} for row in rows if row[2].isascii() and row[2].isalpha()]
    return render(request, "aiops/marks.html", {"rows": rows})
