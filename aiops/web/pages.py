"""Log lines in the browser: search, and one line with the explanation of its verdict. Users see their own lines."""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from aiops import logstore
from aiops.judging import feedback, log_search
from aiops.judging import insights as charts
from kernel.errors import Fault, Refused
from kernel.messages import translate
from kernel.pages import attempt, safe_next

SHOWN = 100
TEMPLATES_SHOWN = 200
OF_A_TEMPLATE = 2000  # its newest lines, whose texts get the feedback on a template
NEIGHBOURS = 8
SPANS = [
    ("1", gettext_lazy("1 hour")),
    ("6", gettext_lazy("6 hours")),
    ("24", gettext_lazy("1 day")),
    ("168", gettext_lazy("1 week")),
]
USUAL_HOURS = "24"
AFTER_MS = 10_000  # how far after a line its context is searched
FILTERS = ("level", "q", "cluster", "namespace", "deployment", "since", "until", "template")


def or_unavailable(view):
    """Wrap a view so that it shows the problem, with 503, while the log store is away."""

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
    try:
        body, mark = log_search.body(request.user, **given), _mark(request.GET.get("after", ""))
        rows, more = logstore.get().search(body, SHOWN, mark)
        context["rows"] = [_row(row) for row in rows]
        context["more"] = json.dumps(more) if more is not None else ""
        newest = not mark and not {"since", "until"} & set(given)
        context["tail"] = ["", *log_search.LEVELS] if newest else None  # the page's websocket adds new lines on top
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


def _row(document: dict) -> dict:
    fields = {name.lstrip("_"): value for name, value in document.items()}
    return {**fields, "at": datetime.fromtimestamp(document["time"] / 1000, UTC)}


def _line(request, id: str) -> dict:
    """Return the line if the user may see it. Raises Http404, Fault."""
    body = log_search.body(request.user)
    allowed = body["query"]
    wanted = {"query": {"bool": {"filter": [allowed, {"term": {"_id": id}}]}}}
    rows, _more = logstore.get().search(wanted, 1) if id and "\x00" not in id else ([], None)
    if not rows:
        raise Http404
    return rows[0]


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
    words = {str(word) for _position, word in document.get("unexpected") or []}
    context = {
        "line": _row(document),
        "words": [(word, word in words) for word in (document.get("masked_log") or "").split()],
        "unexpected": sorted(words),
        "alike": alike,
        "all": store.count(log_search.body(request.user, **workload)) if alike is not None else None,
        "around": [_row(one) for one in [*after[-NEIGHBOURS:], *before]],
        "feedback": feedback.of(document),
    }
    return render(request, "aiops/line.html", context)


@login_required
@require_GET
def templates(request):
    """Show the templates of the lines that match the filters, the most frequent first."""
    given = {name: request.GET[name] for name in ("q", "level", "namespace", "deployment") if request.GET.get(name)}
    hours = _hours(request)
    context = {"given": given, "rows": [], "hours": hours, "spans": SPANS}
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
    """Record an operator's feedback on a line, or on all lines of a template. It applies to all users' lines."""
    if not request.user.is_staff:
        raise PermissionDenied
    level, template = request.POST.get("level", ""), request.POST.get("template", "")
    documents = [] if template else [_line(request, request.POST.get("id", ""))]

    def do() -> None:
        of_template = log_search.body(request.user, template=template) if template else None
        feedback.record(documents or logstore.get().search(of_template, OF_A_TEMPLATE)[0], level, request.user)

    problem = attempt(do)
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("Saved. It applies immediately and in the next training."))
    if template:
        return redirect(safe_next(request, reverse("aiops_templates")))
    query = QueryDict(mutable=True)
    query["id"] = request.POST["id"]
    return redirect(f"{reverse('aiops_line')}?{query.urlencode()}")
