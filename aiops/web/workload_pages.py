"""The page of a workload: its templates with how often they usually come, the counts of one, unusual times, odd
sessions, and what is marked as normal.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from aiops.judging import insights as charts
from aiops.judging import log_search, rate_table, scope, session_table, suppressions
from kernel.errors import Fault, Refused
from kernel.fields import StrictSerializer
from kernel.locking import Missing
from kernel.messages import translate
from kernel.pages import attempt, number_in, read_form, safe_next

from .pages import SPANS, USUAL_HOURS
from .suppressions_api import MAX_NOTE, Note

ANOMALIES_SHOWN = 50
SESSIONS_SHOWN = 50
REASONS_SHOWN = 3  # of a session


class NoteForm(StrictSerializer):
    note = Note(required=False, allow_blank=True, max_length=MAX_NOTE)


@login_required
@require_GET
def workload(request):
    """Show the workload `cluster`, `namespace`, `deployment`, of `template` the lines over time."""
    given = {
        "cluster": request.GET.get("cluster") or scope.LOCAL,
        "namespace": request.GET.get("namespace") or request.user.username,
        "deployment": request.GET.get("deployment", ""),
    }
    if not given["deployment"] or not scope.may_see(request.user, given["cluster"], given["namespace"]):
        raise Http404
    if number_in(request.GET.get("template", "")) is not None:
        given["template"] = request.GET["template"]
    asked = request.GET.get("hours", "")
    hours = asked if asked in dict(SPANS) else USUAL_HOURS
    times = {name: request.GET[name] for name in ("since", "until") if request.GET.get(name)}
    context = {
        "given": given,
        "hours": hours,
        "spans": SPANS,
        "rows": [],
        "anomalies": [],
        "sessions": [],
        "owns": scope.owns(request.user, given["cluster"], given["namespace"]),
        "status": 200,
    }
    try:
        _fill(request, context, given, times)
    except Refused as refusal:
        context |= {"problem": translate(refusal.msg), "status": 403}
    except Fault as fault:
        context |= {"problem": translate(fault.msg), "status": 503}
    return render(request, "aiops/workload.html", context, status=context["status"])


def _fill(request, context: dict, given: dict, times: dict) -> None:
    names = given["cluster"], given["namespace"], given["deployment"]
    filters = {**given, **times}
    log_search.body(request.user, **filters)  # refuses wrong ones
    context["chart"] = charts.chart(request.user, filters, context["hours"])
    context["rows"] = [_row(row) for row in rate_table.templates(request.user, names)]
    context["chosen"] = next((row for row in context["rows"] if str(row["number"]) == given.get("template")), None)
    context["anomalies"] = [_anomaly(row) for row in rate_table.anomalies(names)[:ANOMALIES_SHOWN]]
    context["judges_sessions"] = session_table.is_judged(names)
    context["suppressed"] = [_suppressed(row) for row in suppressions.visible(request.user, names)]
    context["sessions"] = [_session(row) for row in session_table.odd(names)[:SESSIONS_SHOWN]]


def _row(row: dict) -> dict:
    return {**row, "at": datetime.fromtimestamp(row["last"] / 1000, UTC)}


def _anomaly(row) -> dict:
    since = datetime.fromtimestamp(row.since / 1000, UTC)
    return {"row": row, "since": since, "until": row.until and datetime.fromtimestamp(row.until / 1000, UTC)}


def _session(row) -> dict:
    return {
        "row": row,
        "since": datetime.fromtimestamp(row.since / 1000, UTC),
        "search": urlencode(session_table.filters(row)),
        "reasons": [translate(session_table.describe(reason)) for reason in row.reasons[:REASONS_SHOWN]],
        "more": max(0, len(row.reasons) - REASONS_SHOWN),
    }


def _suppressed(row) -> dict:
    reasons = [translate(session_table.describe(reason)) for reason in row.reasons[:REASONS_SHOWN]]
    return {"row": row, "reasons": reasons}


@login_required
@require_POST
def suppress(request):
    """Mark an unusual session or rate as normal, or report it again; `next` is the workload's page."""
    problem = attempt(lambda: messages.success(request, _suppress(request)))
    if problem:
        messages.error(request, problem)
    return redirect(safe_next(request, reverse("aiops_watched")))


def _suppress(request) -> str:
    """Do what was asked for; return what to tell. Raises Refused."""
    wish, _colon, number = request.POST.get("do", "").partition(":")
    try:
        if wish == "undo":
            suppressions.undo(request.user, number_in(number))
            return _("It is reported again.")
        if wish not in ("session", "rate"):
            raise Refused("must be session, rate or undo", field="do")
        note = read_form(request, NoteForm).get("note", "")
        mark = suppressions.mark_session if wish == "session" else suppressions.mark_rate
        mark(request.user, number_in(number), note)
    except Missing:
        raise Refused("it is no longer listed")
    if wish == "session":
        return _("Sessions like this one are no longer reported.")
    return _("This rate is no longer reported.")
