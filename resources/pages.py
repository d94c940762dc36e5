"""The usage page: the tenant's capacity, what is in use, and what the user holds of it."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET

from . import limits
from .models import KINDS, RequestType, ResourceRequest, State, Tenant
from .usage import BY, with_objects

SPANS = [("1", _("1 hour")), ("24", _("1 day")), ("168", _("1 week")), ("720", _("30 days")), ("2160", _("90 days"))]
LABELS = {"cpu": _("CPU"), "gpu": _("GPU"), "ram": _("Memory"), "rom": _("Disk")}


def bars(tenant: Tenant) -> list[dict]:
    """Return one row for each kind, for the usage bars: label, in use, capacity, percent, borrowed and lent."""
    rows = [_bar(kind, getattr(tenant, f"{kind}_inuse"), getattr(tenant, kind)) for kind in LABELS]
    for row in rows:
        row["free"] = tenant.left(row["kind"])
        row["borrowed"], row["lent"] = tenant.borrowed(row["kind"]), tenant.lent(row["kind"])
    return rows


def own_bars(user, tenant: int = 0) -> list[dict]:
    """Return the same for what the user holds in a tenant, by default their own, for each kind with a limit."""
    tenant = tenant or user.tenant_id
    limit = limits.limit_of(tenant, user.username)
    limited = [kind for kind in LABELS if getattr(limit, kind, None) is not None]
    used = limits.used_by(tenant, user.username) if limited else {}
    return [_bar(kind, used[kind], getattr(limit, kind)) for kind in limited]


def users_of(user, tenant: Tenant) -> list[dict]:
    """Return use and limit of each user of the tenant, for its administrators; nothing for others."""
    rows = limits.overview(tenant.pk) if user.administers(tenant.pk) else []
    for row in rows:
        row["kinds"] = [(kind, row["used"][kind], getattr(row["limit"], kind, None)) for kind in LABELS]
    return rows


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


@login_required
@require_GET
def usage(request):
    tenants = list(Tenant.objects.filter(pk__in=request.user.roles()).order_by("name"))
    wanted = request.GET.get("tenant", "")
    tenant = next((tenant for tenant in tenants if tenant.name == wanted), None)
    if tenant is None and request.user.is_administrator:
        tenant = Tenant.objects.filter(name=wanted.replace("\x00", "")).first()
    tenant = tenant or Tenant.objects.get(pk=request.user.tenant_id)
    manages = request.user.administers(tenant.pk)
    requests = ResourceRequest.objects.filter(
        tenant=tenant,
        owner=request.user.username,
        request_type=RequestType.REQUEST,
        state__in=[State.TRIED, State.CONFIRMED],
    ).order_by("-created")
    rows = list(requests)
    totals = {kind: sum(getattr(row, kind) for row in rows) for kind in KINDS}
    context = {
        "tenant": tenant,
        "bars": bars(tenant),
        "tenants": tenants,
        "manages": manages,
        "own": own_bars(request.user, tenant.pk),
        "users": users_of(request.user, tenant),
        "held": with_objects(rows[:200]),
        "totals": totals,
        "spans": SPANS,
        "hours": _chosen(request, "hours", [str(hours) for hours, _label in SPANS], "24"),
        "by": _chosen(request, "by", list(BY), "owner" if manages else "kind"),
        "resource": _chosen(request, "resource", list(LABELS), "cpu"),
    }
    return render(request, "resources/usage.html", context)
