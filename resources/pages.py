"""What the user's tenant has, what is in use, and what the user holds of it (contract 7)."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET

from .models import KINDS, RequestType, ResourceRequest, State, Tenant

LABELS = {"cpu": _("CPU"), "gpu": _("GPU"), "ram": _("Memory"), "rom": _("Disk")}


def bars(tenant: Tenant) -> list[dict]:
    """One row for each kind: label, in use, capacity and percent, for the usage bars of the pages."""
    rows = []
    for kind in ("cpu", "gpu", "ram", "rom"):
        used, whole = getattr(tenant, f"{kind}_inuse"), getattr(tenant, kind)
        percent = round(100 * float(used) / float(whole)) if whole else 0
        rows.append({"kind": kind, "label": LABELS[kind], "used": used, "whole": whole, "percent": percent})
    return rows


@login_required
@require_GET
def usage(request):
    tenant = Tenant.objects.get(pk=request.user.tenant_id)
    mine = ResourceRequest.objects.filter(tenant=tenant, owner=request.user.username)
    given_back = {
        pk.removesuffix(":release")
        for pk in mine.filter(request_type=RequestType.RELEASE, state=State.CONFIRMED).values_list("pk", flat=True)
    }
    live = mine.filter(request_type=RequestType.REQUEST).exclude(state=State.CANCELLED).order_by("-created")
    held = [row for row in live if row.pk not in given_back]
    totals = {kind: sum(getattr(row, kind) for row in held) for kind in KINDS}
    context = {"tenant": tenant, "bars": bars(tenant), "held": held[:200], "totals": totals}
    return render(request, "resources/usage.html", context)
