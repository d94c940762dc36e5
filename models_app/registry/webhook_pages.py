"""The page of a user's webhooks of the registry: add, test, pause, change and delete them, and see what was sent."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from kernel.locking import Missing
from kernel.messages import translate
from kernel.pages import Problems, act, page_of, problems_of, why_not
from models_app.models import RegistryDelivery, RegistryWebhook

from . import events, webhooks

DELIVERIES_SHOWN = 10
FIELDS = ("name", "url", "events", "secret")


@login_required
@require_http_methods(["GET", "POST"])
def registry_webhooks(request):
    """Show the user's webhooks; a POST adds one."""
    problems = Problems()
    if request.method == "POST":
        problems = problems_of(lambda: webhooks.save(request.user, **_given(request)), FIELDS)
        if not problems:
            messages.success(request, _("The webhook %(name)s is added.") % {"name": request.POST["name"]})
            return redirect("registry_webhooks")
    rows = RegistryWebhook.objects.filter(user=request.user)
    page = page_of(request, rows.order_by("-pk"))
    shown = list(page.object_list)
    _add_deliveries(shown)
    context = {
        "page": page,
        "webhooks": shown,
        "events": events.EVENTS,
        "problems": problems,
        "form": request.POST if problems else {},
        "chosen": request.POST.getlist("events") if problems else [],
        "open": bool(problems or not shown),
        "full": why_not(lambda: webhooks.require_room(request.user)),
        "most_secret": webhooks.MAX_SECRET,
    }
    return render(request, "registry/webhooks.html", context, status=problems.status if problems else 200)


def _add_deliveries(shown: list[RegistryWebhook]) -> None:
    """Give each webhook its last deliveries as `sent`, newest first."""
    number = Window(RowNumber(), partition_by=F("webhook"), order_by=F("pk").desc())
    rows = RegistryDelivery.objects.filter(webhook__in=shown).annotate(number=number)
    by_webhook: dict[int, list[RegistryDelivery]] = {}
    for row in rows.filter(number__lte=DELIVERIES_SHOWN).order_by("-pk"):
        by_webhook.setdefault(row.webhook_id, []).append(row)
    for hook in shown:
        hook.sent = by_webhook.get(hook.pk, [])


def _given(request) -> dict:
    """Return the posted fields. An empty secret leaves the stored one; `unsigned` removes it."""
    fields = {name: request.POST.get(name, "").strip() for name in ("name", "url", "description")}
    fields["events"] = request.POST.getlist("events")
    secret = request.POST.get("secret", "")
    if secret or "unsigned" in request.POST:
        fields["secret"] = "" if "unsigned" in request.POST else secret
    return fields


@login_required
@require_POST
def change(request, key: str):
    """Change, test or delete a webhook; `do` says what."""
    try:
        hook = webhooks.find(request.user, key)
    except Missing:
        raise Http404
    return act(request, CHANGES, hook, redirect("registry_webhooks"))


def _edit(request, hook: RegistryWebhook) -> None:
    webhooks.save(request.user, hook, **_given(request))


def _test(request, hook: RegistryWebhook) -> None:
    result = webhooks.try_out(hook)
    if result["problem"]:
        messages.error(request, translate(result["problem"]))
        return
    said = _("The webhook answered %(status)s. %(body)s") % {"status": result["status"], "body": result["body"][:200]}
    (messages.success if result["success"] else messages.error)(request, said)


def _pause(request, hook: RegistryWebhook) -> None:
    webhooks.save(request.user, hook, active=False)


def _resume(request, hook: RegistryWebhook) -> None:
    webhooks.save(request.user, hook, active=True)


def _again(request, hook: RegistryWebhook) -> None:
    row = webhooks.find_delivery(hook, request.POST.get("delivery", ""))
    if row is None:
        raise Http404
    webhooks.again(row)


def _delete(request, hook: RegistryWebhook) -> None:
    webhooks.delete(hook)
    messages.success(request, _("The webhook %(name)s is deleted.") % {"name": hook.name})


CHANGES: dict[str, Callable] = {
    "edit": _edit,
    "test": _test,
    "pause": _pause,
    "resume": _resume,
    "again": _again,
    "delete": _delete,
}
