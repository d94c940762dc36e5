"""The admin site as a whole: dashboard, sidebar, search. Each app registers its own models."""

from __future__ import annotations

import logging
import shutil
import threading
from datetime import timedelta

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db.models import Count, Model, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.dataclasses import SearchResult

from accounts.admin import waiting
from aiops.models import Alert, ModelVersion, Workload
from kernel import clock, storage
from kernel.admin_display import TONES, acted, bar, changed, list_address, state_name, url_of
from kernel.messages import translate
from kernel.models import StateChange
from mlp.operators import audit, largest, machine, operator_logs
from mlp.operators.admin_theme import GROUPS
from resources.models import KINDS, Tenant
from resources.shown import NAMES, amount, share
from supervision import health, tls

log = logging.getLogger(__name__)

PATIENCE_S = health.LIMIT_S + 0.5
LATEST = 12
FAILED = 6
WAITING = 8
TENANTS = 12
SEARCH_RESULTS = 8
LATELY = timedelta(days=7)


# --- the dashboard ------------------------------------------------------------------------------------------------
def dashboard(request: HttpRequest, context: dict) -> dict:
    """Return the context of the start page. The page fetches the components' states separately, from `parts`."""
    return {
        **context,
        "title": gettext("Overview"),
        "kinds": kinds(request),
        "warnings": [*certificate_warnings(), *clock_warnings()],
        "waiting": waiting().order_by("created")[:WAITING],
        "waiting_count": waiting().count(),
        "waiting_url": list_address("accounts_user", waiting="yes"),
        "tenants": [tenant_bars(tenant) for tenant in Tenant.objects.order_by("name")[:TENANTS]],
        "tenants_url": list_address("resources_tenant"),
        "disk": disk(),
        "latest": latest(),
        "latest_url": reverse("admin:audit"),
        "failed": failed(),
        "failed_url": list_address("kernel_statechange", target="error"),
        "addresses": addresses(),
        "logs": log_analysis(),
    }


def certificate_warnings() -> list[str]:
    """Return what is to be done about the gateways' certificate."""
    warnings, served = [], tls.served()
    if problem := tls.problem():
        warnings.append(gettext("The new TLS certificate is not used: %(problem)s") % {"problem": problem})
    if served is not None and served.ends_soon:
        end = f"{date_format(served.ends, 'DATETIME_FORMAT')} UTC"
        warnings.append(gettext("The TLS certificate expires on %(end)s. Renew it (docs/tls.md).") % {"end": end})
    return warnings


def clock_warnings() -> list[str]:
    """Return what is to be done about a clock that has jumped ahead."""
    warning = clock.warning()
    return [translate(warning)] if warning else []


def kinds(request: HttpRequest) -> list[dict]:
    """Return the number of objects by kind and state, with the addresses of their lists."""
    rows = []
    for model, model_admin in registered():
        if not has_state(model) or not model_admin.has_view_permission(request):
            continue
        counts = dict(model._default_manager.order_by().values_list("state").annotate(count=Count("pk")))
        address = f"{model._meta.app_label}_{model._meta.model_name}"
        states = [
            {
                "label": label,
                "tone": TONES.get(value, "plain"),
                "count": counts.get(value, 0),
                "url": list_address(address, state__exact=value),
            }
            for value, label in model._meta.get_field("state").choices
        ]
        rows.append(
            {
                "name": capfirst(model._meta.verbose_name_plural),
                "icon": icon_of(model),
                "total": sum(counts.values()),
                "url": list_address(address),
                "states": states,
            }
        )
    return rows


def tenant_bars(tenant: Tenant) -> dict:
    bars = [{"name": NAMES[kind], "bar": share(tenant, kind)} for kind in KINDS]
    return {"name": tenant.name, "url": url_of(tenant), "bars": bars}


def disk() -> str:
    usage = shutil.disk_usage(storage.root())
    used = usage.total - usage.free
    text = gettext("%(used)s of %(whole)s") % {"used": amount("rom", used), "whole": amount("rom", usage.total)}
    return bar(used, usage.total, text)


def latest() -> list:
    """Return the newest state changes and administrators' other actions, newest first."""
    rows = [changed(row) for row in StateChange.objects.order_by("-id")[:LATEST]]
    acts = LogEntry.objects.select_related("user", "content_type").order_by("-id")[:LATEST]
    rows += [acted(row) for row in acts]
    return sorted(rows, key=lambda entry: entry.at, reverse=True)[:LATEST]


def failed() -> list:
    """Return the recent failures; what was cancelled or stopped is not among them."""
    since = timezone.now() - LATELY
    rows = StateChange.objects.failures().filter(at__gte=since)
    return [changed(row) for row in rows.order_by("-id")[:FAILED]]


def addresses() -> list[tuple]:
    base = settings.GATEWAY_URL
    return [
        (_("Gateway"), f"{base}/"),
        (_("REST reference"), f"{base}/api/v1/docs"),
        (_("REST schema"), f"{base}/api/v1/schema"),
        (_("Health"), f"{base}/healthz"),
        (_("Data client"), f"{base}/data_client.pyz"),
    ]


def log_analysis() -> dict:
    """Return the active log model, the number of log lines and of the last day's alerts."""
    serving = ModelVersion.objects.filter(serving=True).first()
    return {
        "serving": serving,
        "serving_url": url_of(serving) if serving else "",
        "lines": Workload.objects.aggregate(lines=Sum("lines"))["lines"] or 0,
        "alerts": Alert.objects.filter(at__gte=timezone.now() - timedelta(days=1)).count(),
        "alerts_url": reverse("aiops_alerts"),
    }


def parts(request: HttpRequest) -> HttpResponse:
    """Render the state of each component, within PATIENCE_S. The open dashboard fetches it after each change."""
    report: dict[str, str] = {}
    thread = threading.Thread(target=_collect, args=(report,), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    rows = [{"name": name, "state": state, "ok": state == "ok"} for name, state in sorted(report.items())]
    context = {"parts": rows, "failing": sum(not row["ok"] for row in rows), "asked": timezone.now()}
    return render(request, "admin/dashboard/parts.html", context)


def _collect(report: dict[str, str]) -> None:
    try:
        report.update(health.report())
    except Exception:  # of any kind: the page shows that there is no report
        log.exception("the health of the components could not be determined")


# --- around every page ----------------------------------------------------------------------------------------------
def registered() -> list[tuple[type[Model], ModelAdmin]]:
    """Return the models with their admins in the order of GROUPS; models that GROUPS does not name come last."""
    order = [label for _title, labels in GROUPS for label in labels]
    position = {label: index for index, label in enumerate(order)}
    return sorted(admin.site._registry.items(), key=lambda pair: position.get(pair[0]._meta.label_lower, len(order)))


def has_state(model: type[Model]) -> bool:
    return any(field.name == "state" for field in model._meta.fields)


def navigation(request: HttpRequest) -> list[dict]:
    """Return the sidebar: the overview, the registered models by GROUPS, then those that GROUPS does not name."""
    models = {model._meta.label_lower: model for model, _admin in registered()}
    site_pages = [
        {"title": _("Overview"), "icon": "space_dashboard", "link": reverse("admin:index")},
        {"title": _("Audit log"), "icon": "history_edu", "link": reverse("admin:audit")},
        {"title": _("Largest items"), "icon": "hard_drive", "link": reverse("admin:largest")},
        {"title": _("Component logs"), "icon": "description", "link": reverse("admin:part_logs")},
        {"title": _("Effective settings"), "icon": "tune", "link": reverse("admin:shown_settings")},
    ]
    groups = [{"title": None, "items": site_pages}]
    for title, labels in GROUPS:
        items = [_item(request, models.pop(label)) for label in labels if label in models]
        if items:
            groups.append({"title": title, "separator": True, "items": items})
    rest = [_item(request, model) for model in models.values()]
    if rest:
        groups.append({"title": _("More"), "separator": True, "items": rest})
    return groups


def _item(request: HttpRequest, model: type[Model]) -> dict:
    item = {
        "title": capfirst(model._meta.verbose_name_plural),
        "icon": icon_of(model),
        "link": list_address(f"{model._meta.app_label}_{model._meta.model_name}"),
        "permission": lambda current: admin.site._registry[model].has_view_permission(current),
    }
    if model._meta.label_lower == "accounts.user":
        count = waiting().count()
        if count:
            item |= {"badge": count, "badge_variant": "warning"}
    return item


def icon_of(model: type[Model]) -> str:
    return getattr(admin.site._registry[model], "icon", "data_object")


def account_links(request: HttpRequest) -> list[dict]:
    own = reverse("admin:accounts_user_verb", args=[request.user.pk, "password"]) if request.user.pk else ""
    return [{"title": _("Change password"), "link": own}, {"title": _("REST reference"), "link": "/api/v1/docs"}]


def search(request: HttpRequest, term: str) -> list[SearchResult]:
    """Return the newest few objects of each kind with a state whose search fields match."""
    results = []
    for model, model_admin in registered():
        if not has_state(model) or not model_admin.has_view_permission(request):
            continue
        rows, _many = model_admin.get_search_results(request, model_admin.get_queryset(request), term)
        for row in rows.order_by("-pk")[:SEARCH_RESULTS]:
            kind = str(capfirst(model._meta.verbose_name))
            results.append(SearchResult(str(row), f"{kind}, {state_name(row)}", url_of(row), icon_of(model)))
    return results


def extra_urls() -> list:
    return [
        path("parts/", admin.site.admin_view(parts), name="parts"),
        path("machine/", admin.site.admin_view(machine.machine), name="machine"),
        path("audit/", admin.site.admin_view(audit.audit), name="audit"),
        path("largest/", admin.site.admin_view(largest.largest), name="largest"),
        path("logs/", admin.site.admin_view(operator_logs.logs), name="part_logs"),
        path("settings/", admin.site.admin_view(operator_logs.shown_settings), name="shown_settings"),
    ]


admin.site.extra_urls = extra_urls
