"""Log lines in the browser: looking for them, and one line with why it was judged so. Users see those of their own."""

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
from django.views.decorators.http import require_GET, require_POST

from mlp.kernel.errors import Fault, Refused
from mlp.kernel.pages import attempt
from mlp.kernel.words import say

from . import feedback, logstore, search

SHOWN = 100
NEIGHBOURS = 8
AFTER_MS = 10_000  # how far the lines after one are looked for
FILTERS = ("level", "q", "cluster", "namespace", "deployment", "since", "until", "template")


def away_is_told(view):
    """A store that is away is told on the page, with 503."""

    @functools.wraps(view)
    def told(request):
        try:
            return view(request)
        except Fault as fault:
            context = {"given": {}, "rows": [], "problem": say(fault.msg)}
            return render(request, "aiops/insights.html", context, status=503)

    return told


@login_required
@require_GET
def insights(request):
    """The newest lines that the filters in the address ask for. `after` is the mark of the page before."""
    given = {name: request.GET[name] for name in FILTERS if request.GET.get(name)}
    context = {"given": given, "levels": search.LEVELS, "rows": []}
    try:
        body = search.body(request.user, **given)
        store = logstore.get()
        rows, more = store.search(body, SHOWN, _mark(request.GET.get("after", "")))
        counted = {name: value for name, value in given.items() if name != "level"}
        context["anomalies"] = store.count(search.body(request.user, **{**counted, "level": "Anomaly"}))
        context["rows"] = [_row(row) for row in rows]
        context["more"] = json.dumps(more) if more is not None else ""
    except Refused as refusal:
        context["problem"], status = say(refusal.msg), 403
    except Fault as fault:
        context["problem"], status = say(fault.msg), 503
    else:
        status = 200
    return render(request, "aiops/insights.html", context, status=status)


def _mark(text: str):
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    good = isinstance(found, list) and len(found) == 2 and all(type(one) in {int, str} for one in found)
    if not good:
        raise Refused("after: is no mark of a page")
    return found


def _row(document: dict) -> dict:
    found = {name.lstrip("_"): value for name, value in document.items()}
    return {**found, "at": datetime.fromtimestamp(document["time"] / 1000, UTC)}


def _line(request, id: str) -> dict:
    """The line, when it may be seen. Raises Http404, Fault."""
    body = search.body(request.user)
    allowed = body["query"]
    wanted = {"query": {"bool": {"filter": [allowed, {"term": {"_id": id}}]}}}
    rows, _more = logstore.get().search(wanted, 1) if id and "\x00" not in id else ([], None)
    if not rows:
        raise Http404
    return rows[0]


@login_required
@require_GET
@away_is_told
def line(request):
    document = _line(request, request.GET.get("id", ""))
    workload = {
        name: document.get(field)
        for name, field in (("cluster", "cluster_id"), ("namespace", "namespace_name"), ("deployment", "deployment"))
        if document.get(field)
    }
    at, store = document["time"], logstore.get()
    around = {"until": str(at + 1)}, {"since": str(at + 1), "until": str(at + AFTER_MS)}
    before, _more = store.search(search.body(request.user, **workload, **around[0]), NEIGHBOURS)
    after, _more = store.search(search.body(request.user, **workload, **around[1]), 1000)
    template = document.get("template_cluster_id")
    alike = None
    if template is not None:
        alike = store.count(search.body(request.user, **workload, template=str(template)))
    words = {str(word) for _position, word in document.get("unexpected") or []}
    context = {
        "line": _row(document),
        "words": [(word, word in words) for word in (document.get("masked_log") or "").split()],
        "unexpected": sorted(words),
        "alike": alike,
        "all": store.count(search.body(request.user, **workload)) if alike is not None else None,
        "around": [_row(one) for one in [*after[-NEIGHBOURS:], *before]],
        "told": feedback.of(document),
    }
    return render(request, "aiops/line.html", context)


@login_required
@require_POST
@away_is_told
def tell(request):
    """A person's word on the line. For operators: it counts for everybody's lines of that text."""
    if not request.user.is_staff:
        raise PermissionDenied
    id = request.POST.get("id", "")
    document = _line(request, id)
    problem = attempt(lambda: feedback.tell(document, request.POST.get("level", ""), request.user))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("Noted: it counts from now on, and in the next training."))
    query = QueryDict(mutable=True)
    query["id"] = id
    return redirect(f"{reverse('aiops_line')}?{query.urlencode()}")
