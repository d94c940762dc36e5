"""The usage page: the tenant's capacity, what is in use, and what the user holds of it (contract 7)."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET

from kernel.models import StateChange

from . import limits
from .models import KINDS, RequestType, ResourceRequest, State, Tenant
from .usage import BY

SPANS = [("1", _("1 hour")), ("24", _("1 day")), ("168", _("1 week")), ("720", _("30 days")), ("2160", _("90 days"))]
LABELS = {"cpu": _("CPU"), "gpu": _("GPU"), "ram": _("Memory"), "rom": _("Disk")}


def bars(tenant: Tenant) -> list[dict]:
    """Return one row for each kind: label, in use, capacity and percent, for the usage bars."""
    return [_bar(kind, getattr(tenant, f"{kind}_inuse"), getattr(tenant, kind)) for kind in LABELS]


def own_bars(user) -> list[dict]:
    """Return the same for what the user holds, for each kind on which the user has a limit."""
    limit = limits.limit_of(user.tenant_id, user.username)
    limited = [kind for kind in LABELS if getattr(limit, kind, None) is not None]
    used = limits.used_by(user.tenant_id, user.username) if limited else {}
    return [_bar(kind, used[kind], getattr(limit, kind)) for kind in limited]


def _bar(kind: str, used, whole) -> dict:
    percent = round(100 * float(used) / float(whole)) if whole else 0
    return {
        "kind": kind,
        "label": LABELS[kind],
        "used": used,
        "whole": whole,
        "free": max(whole - used, 0),
        "percent": percent,
    }


def _chosen(request, name: str, legal: list[str], default: str) -> str:
    value = request.GET.get(name, default)
    return value if value in legal else default


def _kind_and_number(row: ResourceRequest) -> tuple[str, str]:
    """Return the history's kind and the key of the object that the request is for, from its id: `app:7`."""
    kind, _colon, number = row.pk.partition(":")
    return ("application" if kind == "app" else kind), number


def _with_objects(held: list[ResourceRequest]) -> list[tuple[ResourceRequest, str, str]]:
    """Return each request with the kind and the name of its object, as far as the history has them.

    The history is used because the objects' apps import this one.
    """
    keys = {row.pk: _kind_and_number(row) for row in held}
    ids = [int(number) for _kind, number in keys.values() if number.isdigit()]
    made = StateChange.objects.filter(transition="create", object_id__in=ids).values_list("kind", "object_id", "name")
    names = {(kind, str(pk)): name for kind, pk, name in made}
    return [(row, keys[row.pk][0], names.get(keys[row.pk], "")) for row in held]


@login_required
@require_GET
def usage(request):
    tenant = Tenant.objects.get(pk=request.user.tenant_id)
    held = ResourceRequest.objects.filter(
        tenant=tenant,
        owner=request.user.username,
        request_type=RequestType.REQUEST,
        state__in=[State.TRIED, State.CONFIRMED],
    ).order_by("-created")
    rows = list(held)
    totals = {kind: sum(getattr(row, kind) for row in rows) for kind in KINDS}
    context = {
        "tenant": tenant,
        "bars": bars(tenant),
        "own": own_bars(request.user),
        "held": _with_objects(rows[:200]),
        "totals": totals,
        "spans": SPANS,
        "hours": _chosen(request, "hours", [str(hours) for hours, _label in SPANS], "24"),
        "by": _chosen(request, "by", list(BY), "owner" if request.user.is_staff else "kind"),
        "resource": _chosen(request, "resource", list(LABELS), "cpu"),
    }
    return render(request, "resources/usage.html", context)
