"""The page of alert rules, for operators: rules with on/off and delete, a form for a new one, recent alerts."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods
from rest_framework import serializers

from aiops.models import Alert, AlertRule
from kernel.errors import Refused
from kernel.fields import StrictSerializer
from kernel.pages import number_in, page_of, problems_of, read_form

DAY_S = 86_400


class RuleForm(StrictSerializer):
    name = serializers.CharField(max_length=64)
    kind = serializers.ChoiceField(choices=AlertRule.Kind.values)
    cluster = serializers.CharField(max_length=253, required=False)
    namespace = serializers.CharField(max_length=253, required=False)
    deployment = serializers.CharField(max_length=253, required=False)
    threshold = serializers.IntegerField(min_value=1, max_value=1_000_000, required=False)
    window_s = serializers.IntegerField(min_value=15, max_value=7 * DAY_S, required=False)
    quiet_s = serializers.IntegerField(min_value=0, max_value=30 * DAY_S, required=False)


@login_required
@require_http_methods(["GET", "POST"])
def alerts(request):
    if not request.user.is_staff:
        raise PermissionDenied
    problems = None
    if request.method == "POST":
        problems = problems_of(lambda: _do(request), RuleForm().fields)
        if not problems:
            messages.success(request, _("Done."))
            return redirect("aiops_alerts")
    context = {
        "rules": AlertRule.objects.select_related("owner"),
        "page": page_of(request, Alert.objects.select_related("rule")),
        "kinds": AlertRule.Kind.choices,
        "given": request.POST,
        "problems": problems,
    }
    return render(request, "aiops/alerts.html", context, status=problems.status if problems else 200)


def _do(request) -> None:
    wish, _colon, number = request.POST.get("do", "").partition(":")
    if wish == "create":
        _create(request)
        return
    pk = number_in(number)
    rules = AlertRule.objects.filter(pk=pk)
    if wish not in ("on", "off", "delete") or pk is None:
        raise Refused("must be create, on, off or delete", field="do")
    if not (rules.delete()[0] if wish == "delete" else rules.update(enabled=wish == "on")):
        raise Refused("this rule no longer exists")


def _create(request) -> None:
    values, now = read_form(request, RuleForm), timezone.now()
    try:
        with transaction.atomic():
            AlertRule.objects.create(owner=request.user, created=now, checked=now, **values)
    except IntegrityError as problem:
        raise Refused("is already taken", field="name") from problem
