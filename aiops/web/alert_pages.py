"""The page of alert rules: a table with mute, on/off and delete, a form for a new or changed rule, recent alerts.

Users see their own rules, administrators all.
"""

from __future__ import annotations

import re

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods
from rest_framework import serializers

from aiops.judging import rules, searches
from aiops.models import Alert, AlertRule
from kernel.errors import Refused
from kernel.fields import StrictSerializer
from kernel.locking import Missing
from kernel.pages import number_in, page_of, problems_of, read_form, why_not

from .alerts_serializers import DAY_S, MAX_NAME, Name

MUTES = [
    ("3600", gettext_lazy("1 hour")),
    ("28800", gettext_lazy("8 hours")),
    ("86400", gettext_lazy("1 day")),
    ("604800", gettext_lazy("1 week")),
]
TEXTS = ("cluster", "namespace", "deployment")


class RuleForm(StrictSerializer):
    name = Name(max_length=MAX_NAME)
    kind = serializers.ChoiceField(choices=AlertRule.Kind.values)
    cluster = serializers.CharField(max_length=253, required=False)
    namespace = serializers.CharField(max_length=253, required=False)
    deployment = serializers.CharField(max_length=253, required=False)
    search = serializers.IntegerField(min_value=1, required=False)
    threshold = serializers.IntegerField(min_value=1, max_value=1_000_000, required=False)
    percent = serializers.IntegerField(min_value=1, max_value=100_000, required=False)
    direction = serializers.ChoiceField(choices=AlertRule.Direction.values, required=False)
    window_s = serializers.IntegerField(min_value=15, max_value=7 * DAY_S, required=False)
    quiet_s = serializers.IntegerField(min_value=0, max_value=30 * DAY_S, required=False)
    recipients = serializers.CharField(max_length=2000, required=False)


@login_required
@require_http_methods(["GET", "POST"])
def alerts(request):
    """Show the rules; `edit` in the address is the number of the rule in the form."""
    edited = None
    if request.GET.get("edit"):
        edited = rules.visible(request.user).filter(pk=number_in(request.GET["edit"])).first()
        if edited is None:
            raise Http404
    problems = None
    if request.method == "POST":
        problems = problems_of(lambda: messages.success(request, _do(request)), RuleForm().fields)
        if not problems:
            return redirect("aiops_alerts")
    mine = rules.visible(request.user)
    context = {
        "rules": mine,
        "page": page_of(request, Alert.objects.filter(rule__in=mine).select_related("rule")),
        "kinds": AlertRule.Kind.choices,
        "directions": AlertRule.Direction.choices,
        "searches": searches.visible(request.user).filter(owner=edited.owner if edited else request.user),
        "mutes": MUTES,
        "now": timezone.now(),
        "edited": edited,
        "full": why_not(lambda: rules.require_room(request.user)),
        "given": request.POST if problems else _shown(edited) if edited else _fresh(request),
        "problems": problems,
    }
    return render(request, "aiops/alerts.html", context, status=problems.status if problems else 200)


def _fresh(request) -> dict:
    """Return the form of a new rule; the address of a saved search names it."""
    search = request.GET.get("search", "")
    return {"search": search, "kind": AlertRule.Kind.SEARCH} if number_in(search) else {}


def _shown(rule: AlertRule) -> dict:
    given = {name: getattr(rule, name) for name in RuleForm().fields if name not in ("search", "recipients")}
    people = ", ".join(sorted(recipient.username for recipient in rule.recipients.all()))
    return {**given, "search": str(rule.search_id or ""), "recipients": people}


def _do(request) -> str:
    """Do what was asked for; return what to tell. Raises Refused."""
    wish, _colon, number = request.POST.get("do", "").partition(":")
    if wish == "create":
        rules.create(request.user, _values(request))
        return _("Alert rule created.")
    if wish not in ("on", "off", "delete", "mute", "change"):
        raise Refused("must be create, change, mute, on, off or delete", field="do")
    try:
        rule = rules.find(request.user, number_in(number))
    except Missing:
        raise Refused("this rule no longer exists")
    if wish == "delete":
        rule.delete()
        return _("Alert rule deleted.")
    if wish == "mute":
        seconds = request.POST.get("seconds", "0")
        if seconds not in ("0", *dict(MUTES)):
            raise Refused("must be one of %(choices)s", field="seconds", choices=", ".join(dict(MUTES)))
        rules.mute(rule, int(seconds))
    elif wish == "change":
        empty = {"search": None, "recipients": [], **dict.fromkeys(TEXTS, "")}
        rules.change(rule, empty | _values(request))
    else:
        rules.change(rule, {"enabled": wish == "on"})
        return _("Alert rule switched on.") if wish == "on" else _("Alert rule switched off.")
    return _("Alert rule changed.")


def _values(request) -> dict:
    values = read_form(request, RuleForm)
    if values["kind"] not in (AlertRule.Kind.SEARCH, AlertRule.Kind.CHANGE):
        values.pop("search", None)  # the field is there for every kind
    if "recipients" in values:
        values["recipients"] = [name for name in re.split(r"[,\s]+", values["recipients"]) if name]
    return values
