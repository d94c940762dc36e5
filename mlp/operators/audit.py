"""The audit log: state changes and administrators' other actions in order of time, for administrators.

Two tables are merged, each read backwards by its own key, so that the page stays fast however long the log is:
`?before=` is the time at which the next page begins.
"""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext

from kernel.admin_display import acted, changed
from kernel.models import StateChange
from mlp.operators.operator_logs import operators_only

ROWS = 50
MAX_WORDS = 100


def audit(request: HttpRequest) -> HttpResponse:
    """Show the audit log; `?who=` and `?q=` filter it, `?operators=1` shows administrators' actions only."""
    operators_only(request)
    who, query = (request.GET.get(name, "").replace("\0", "").strip()[:MAX_WORDS] for name in ("who", "q"))
    only_operators, before = request.GET.get("operators") == "1", _moment(request.GET.get("before", ""))
    rows = entries(who, query, only_operators, before)
    filters = {name: value for name, value in (("who", who), ("q", query)) if value}
    filters |= {"operators": "1"} if only_operators else {}
    context = {
        **admin.site.each_context(request),
        "title": gettext("Audit log"),
        "who": who,
        "q": query,
        "operators": only_operators,
        "rows": rows[:ROWS],
        "older": urlencode(filters | {"before": rows[ROWS - 1].at.isoformat()}) if len(rows) > ROWS else "",
        "newest": urlencode(filters) if before else "",
        "first": before is None,
    }
    return render(request, "admin/operator_logs/audit.html", context)


def entries(who: str, query: str, only_operators: bool, before: datetime | None) -> list:
    """Return the entries of both tables before that time, newest first; one more than a page when there are more."""
    changes, acts = StateChange.objects.order_by("-id"), LogEntry.objects.select_related("user", "content_type")
    if who:
        changes = changes.filter(by__icontains=who)
        acts = acts.filter(user__username__icontains=who.removeprefix("operator:"))
    if query:
        fields = ("owner", "name", "kind", "target", "transition", "reason")
        changes = changes.filter(_any(fields, query))
        acts = acts.filter(_any(("object_repr", "change_message", "content_type__model"), query))
    if only_operators:
        changes = changes.filter(by__startswith="operator:")
    if before is not None:
        changes, acts = changes.filter(at__lt=before), acts.filter(action_time__lt=before)
    rows = [changed(row) for row in changes[: ROWS + 1]]
    rows += [acted(row) for row in acts.order_by("-id")[: ROWS + 1]]
    return sorted(rows, key=lambda entry: entry.at, reverse=True)[: ROWS + 1]


def _any(fields: tuple[str, ...], words: str) -> Q:
    condition = Q()
    for field in fields:
        condition |= Q(**{f"{field}__icontains": words})
    return condition


def _moment(text: str) -> datetime | None:
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    if moment is None:
        return None
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
