"""Log lines in the browser: search, and one line with the explanation of its verdict. Users see their own lines."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from aiops import logstore
from aiops.intake import quota
from aiops.judging import feedback, log_search, own_models, searches, severity, watching
from aiops.judging import insights as charts
from kernel.errors import Fault, Refused
from kernel.locking import Missing
from kernel.messages import translate
from kernel.pages import attempt, safe_next, why_not

from .owners_api import find_line, lines_to_label

SHOWN = 100
TEMPLATES_SHOWN = 200
NEIGHBOURS = 8
SPANS = [
    ("1", gettext_lazy("1 hour")),
    ("6", gettext_lazy("6 hours")),
    ("24", gettext_lazy("1 day")),
    ("168", gettext_lazy("1 week")),
]
USUAL_HOURS = "24"
SEVERITIES = [
    ("error", gettext_lazy("error")),
    ("warning", gettext_lazy("warning")),
    ("info", gettext_lazy("info")),
    ("debug", gettext_lazy("debug")),
]
NO_VERDICT = ("", "unwatched", "untrained", "training")
AFTER_MS = 10_000  # how far after a line its context is searched
FILTERS = (*searches.FILTERS, "since", "until")
NOT_LIVE = {"since", "until", "severity", "trace", "span", "attribute"}  # the live tail does not know them


def or_unavailable(view):
    """Wrap a view so that it shows the problem, with 503, while the log store is unavailable."""

    @functools.wraps(view)
    def wrapper(request):
        try:
            return view(request)
        except Fault as fault:
            context = {"given": {}, "rows": [], "problem": translate(fault.msg)}
            return render(request, "aiops/insights.html", context, status=503)

    return wrapper


@login_required
@require_GET
def insights(request):
    """Show lines over time by verdict, and the newest that match the filters in the address.

    `after` is the cursor of the previous page.
    """
    given = {name: request.GET[name] for name in FILTERS if request.GET.get(name)}
    hours = _hours(request)
    context = {"given": given, "levels": log_search.LEVELS, "rows": [], "hours": hours, "spans": SPANS}
    context["full"] = why_not(lambda: searches.require_room(request.user))
    context["severities"], context["notice"] = SEVERITIES, quota.notice(request.user.username)
    try:
        body, mark = log_search.body(request.user, **given), _mark(request.GET.get("after", ""))
        rows, more = logstore.get().search(body, SHOWN, mark)
        context["rows"] = _rows(rows)
        context["more"] = json.dumps(more) if more is not None else ""
        if more is not None and len(rows) < SHOWN:
            context["searched"] = datetime.fromtimestamp(more[0] / 1000, UTC)
        newest = not mark and not NOT_LIVE & set(given) and _live(request.user, given)
        # the page's websocket adds new lines on top
        context["tail"] = [*NO_VERDICT, *log_search.LEVELS] if newest else None
        context["chart"] = charts.chart(request.user, given, hours)
        if context["chart"]["anomalies"]:
            context["workloads"] = charts.workloads(request.user, given, hours)
    except Refused as refusal:
        context["problem"], status = translate(refusal.msg), 403
    except Fault as fault:
        context["problem"], status = translate(fault.msg), 503
    else:
        status = 200
    return render(request, "aiops/insights.html", context, status=status)


def _hours(request) -> str:
    asked = request.GET.get("hours", "")
    return asked if asked in dict(SPANS) else USUAL_HOURS


def _mark(text: str):
    if not text:
        return None
    try:
        mark = json.loads(text)
    except (ValueError, RecursionError):
        mark = None
    good = isinstance(mark, list) and len(mark) == 2 and type(mark[0]) is int and type(mark[1]) in {int, str}
    if not good:
        raise Refused("is not a valid page marker", field="after")
    return mark


def _live(user, given: dict) -> bool:
    """Return whether the live tail has these lines: a user's has the own ones, not those of a tenant's members."""
    return user.is_administrator or given.get("namespace", user.username) == user.username


def _row(document: dict) -> dict:
    fields = {name.lstrip("_"): value for name, value in document.items()}
    kind, text = severity.severity_of(document.get("attributes"))
    at = datetime.fromtimestamp(document["time"] / 1000, UTC)
    return {**fields, "at": at, "severity": kind, "severity_text": text}


def _rows(documents: list[dict]) -> list[dict]:
    """Return the lines as the templates show them; those without a verdict say whether anybody watches the workload."""
    rows = [_row(document) for document in documents]
    watched = watching.known() if not all(row.get("anomaly_level") for row in rows) else None
    for row in rows:
        row["anomaly_level"] = row.get("anomaly_level") or watching.without_verdict(row, watched)
    return rows


def _line(request, id: str) -> dict:
    """Return the line if the user may see it. Raises Http404, Fault."""
    try:
        return find_line(request.user, id)
    except Missing:
        raise Http404 from None


@login_required
@require_GET
@or_unavailable
def line(request):
    document = _line(request, request.GET.get("id", ""))
    workload = {
        name: document.get(field)
        for name, field in (("cluster", "cluster_id"), ("namespace", "namespace_name"), ("deployment", "deployment"))
        if document.get(field)
    }
    at, store = document["time"], logstore.get()
    around = {"until": str(at + 1)}, {"since": str(at + 1), "until": str(at + AFTER_MS)}
    before, _more = store.search(log_search.body(request.user, **workload, **around[0]), NEIGHBOURS)
    after, _more = store.search(log_search.body(request.user, **workload, **around[1]), 1000)
    template = document.get("template_cluster_id")
    alike = None
    if template is not None:
        alike = store.count(log_search.body(request.user, **workload, template=str(template)))
    said = document.get("unexpected") or []
    words = {str(entry[1]) for entry in said if len(entry) == 2}
    values = [{"position": entry[0], "value": entry[1], "usual": entry[2]} for entry in said if len(entry) > 2]
    context = {
        "line": _rows([document])[0],
        "words": list(_marked(document.get("masked_log") or "", words, {value["position"] for value in values})),
        "unexpected": sorted(words),
        "values": values,
        "alike": alike,
        "all": store.count(log_search.body(request.user, **workload)) if alike is not None else None,
        "around": _rows([*after[-NEIGHBOURS:], *before]),
        "linked": {"trace_id": "trace", "span_id": "span"},
        "judged_by": _judged_by(document),
        "feedback": (label := feedback.from_document(document)),
        "full": "" if label else why_not(lambda: feedback.require_room(request.user)),
    }
    return render(request, "aiops/line.html", context)


def _judged_by(document: dict) -> str | None:
    """Return the tenant whose own model has judged the line, "" for the platform's model; None without a verdict."""
    judge, model = own_models.read(document)
    return own_models.names_of([model])[model] if judge and document.get("anomaly_level") else None


def _marked(masked: str, words: set[str], places: set[int]) -> Iterator[tuple[str, bool]]:
    """Yield the words of a masked text, and whether each was unexpected; of a sentence without spaces its parts.

    places: the numbers of words that stand for an unusual value.
    """
    parts = re.compile("(" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + ")") if words else None
    for place, word in enumerate(masked.split()):
        if place in places:
            yield word, True
        elif parts is None or word in words or word.isascii():
            yield word, word in words
        else:
            yield from ((part, part in words) for part in parts.split(word) if part)


@login_required
@require_GET
def templates(request):
    """Show the templates of the lines that match the filters, the most frequent first."""
    given = {name: request.GET[name] for name in ("q", "level", "namespace", "deployment") if request.GET.get(name)}
    hours = _hours(request)
    context = {"given": given, "rows": [], "hours": hours, "spans": SPANS}
    context["full"] = why_not(lambda: feedback.require_room(request.user))
    since, _width = charts.span({}, hours)
    try:
        body = log_search.body(request.user, since=str(since), field="template_matched", **given)
        context["rows"] = [_template(row) for row in logstore.get().templates(body, TEMPLATES_SHOWN)]
    except Refused as refusal:
        context["problem"], status = translate(refusal.msg), 403
    except Fault as fault:
        context["problem"], status = translate(fault.msg), 503
    else:
        status = 200
    return render(request, "aiops/templates.html", context, status=status)


def _template(row: dict) -> dict:
    times = {name: datetime.fromtimestamp(row[name] / 1000, UTC) for name in ("first", "last")}
    return {**row, **times, "number": row["template_cluster_id"], "newest": _row(row["newest"])}


@login_required
@require_POST
@or_unavailable
def tell(request):
    """Record feedback on a line, or on all lines of a template: a user's for the own namespace, an administrator's for
    all lines.
    """
    level, template = request.POST.get("level", ""), request.POST.get("template", "")
    documents = [] if template else [_line(request, request.POST.get("id", ""))]

    def do() -> None:
        feedback.record(documents or lines_to_label(request.user, "", template), level, request.user)

    problem = attempt(do)
    if problem:
        messages.error(request, problem)
    else:
        staff = _("Saved. It applies immediately and in the next training.")
        messages.success(request, staff if request.user.is_administrator else _("Saved. It applies to your log lines."))
    if template:
        return redirect(safe_next(request, reverse("aiops_templates")))
    query = QueryDict(mutable=True)
    query["id"] = request.POST["id"]
    return redirect(f"{reverse('aiops_line')}?{query.urlencode()}")
