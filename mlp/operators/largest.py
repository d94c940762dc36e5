"""The administrators' page of what takes most space on the disk, of all users."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext

from kernel.admin_display import object_url
from mlp.operators.operator_logs import operators_only
from mlp.trash import kinds
from mlp.trash.largest import COUNTED, MAX, items


def largest(request: HttpRequest) -> HttpResponse:
    """Show the largest datasets, outputs, models and workspaces; `?kind=` only those of a kind."""
    operators_only(request)
    kind = request.GET.get("kind", "")
    kind = kind if kind in COUNTED else ""
    listed = items(kind=kind)
    for item in listed:
        item.url = object_url(item.kind, item.pk)
        item.owner_url = object_url("user", item.owner_id)
        item.verb_url = _verb(item, "delete" if item.trashed else "trash") if item.trashed or item.is_movable else ""
    context = {
        **admin.site.each_context(request),
        "title": gettext("Largest items"),
        "items": listed,
        "kind": kind,
        "kinds": [(name, kinds.KINDS[name].model._meta.verbose_name_plural) for name in COUNTED],
        "most": MAX,
    }
    return render(request, "admin/operator_logs/largest.html", context)


def _verb(item, verb: str) -> str:
    meta = item.model._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_verb", args=[item.pk, verb])
