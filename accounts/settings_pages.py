"""The pages of a user's settings and notifications."""

from __future__ import annotations

import contextlib

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kernel import webhook
from kernel.errors import Refused
from kernel.pages import Problems, page_of, problems_of

from . import delivery, notices, sessions
from .models import Notice, Preference

THEMES = ("", "light", "dark")
LEVELS = {f"notify_{kind}": kind for kind in notices.LEVELS}  # field -> kind of notice
A_YEAR_S = 365 * 86400


def unread(request) -> dict:
    """Return the context of every page: the number of unread notifications, queried only where it is shown."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    return {"unread": SimpleLazyObject(lambda: notices.unread(user))}


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def settings_page(request):
    problems = Problems()
    row = Preference.objects.filter(user=request.user).first() or Preference(user=request.user)
    if request.method == "POST":
        problems = problems_of(lambda: _save(request, row), ("language", "theme", "email", "webhook", *LEVELS))
        if not problems:
            messages.success(request, _("Your settings are saved."))
            return _with_cookies(redirect("settings"), row)
    context = {
        "chosen": row,
        "problems": problems,
        "mail": bool(settings.EMAIL_HOST),
        "secret": delivery.secret_of(request.user),
        "kinds": [_choice(row, kind, field) | {"error": problems.fields.get(field)} for field, kind in LEVELS.items()],
    }
    return render(request, "accounts/settings.html", context, status=problems.status if problems else 200)


def _choice(row: Preference, kind: str, field: str) -> dict:
    """Return what the page says of a kind of notices."""
    words = {
        notices.ALL: _("Everything"),
        notices.FAILURES: _("Failures only"),
        notices.NONE: _("Nothing"),
    }
    kinds = {
        "job": _("Jobs"), "sweep": _("Sweeps"), "pipelinerun": _("Pipelines"), "schedule": _("Schedules"),
        "dataset": _("Datasets"), "export": _("Exports"), "model": _("Models"), "application": _("Applications"),
        "alert": _("Alerts"),
    }  # fmt: skip
    chosen = row.notification_levels.get(kind, notices.ALL)
    offered = [(level, words[level], level == chosen) for level in notices.LEVELS[kind]]
    return {"field": field, "name": kinds[kind], "offered": offered}


def _save(request, row: Preference) -> None:
    known = row.email
    row.language, row.theme = request.POST.get("language", ""), request.POST.get("theme", "")
    row.email, row.webhook = request.POST.get("email", "").strip(), request.POST.get("webhook", "").strip()
    if row.language not in {"", *dict(settings.LANGUAGES)}:
        raise Refused("must be one of the choices offered", field="language")
    if row.theme not in THEMES:
        raise Refused("must be one of the choices offered", field="theme")
    if row.email:
        try:
            validate_email(row.email)
        except ValidationError:
            raise Refused("must be an e-mail address", field="email")
        if len(row.email) > 254:
            raise Refused("must be an e-mail address", field="email")
    # A link for a new password is sent there.
    is_way_in = settings.EMAIL_HOST and request.user.has_usable_password()
    if row.email != known and is_way_in and not sessions.is_fresh(request):
        raise Refused(
            "can be changed only after you confirm your password on the page Two-factor authentication", field="email"
        )
    chosen = {kind: request.POST.get(field, notices.ALL) for field, kind in LEVELS.items()}
    for field, kind in LEVELS.items():
        if chosen[kind] not in notices.LEVELS[kind]:
            raise Refused("must be one of the choices offered", field=field)
    row.notification_levels = {kind: level for kind, level in chosen.items() if level != notices.ALL}
    if len(row.webhook) > 500:
        raise Refused("must have at most 500 characters", field="webhook")
    if row.webhook:
        webhook.target(row.webhook)
    row.save()


def _with_cookies(response: HttpResponse, row: Preference) -> HttpResponse:
    """Set the cookies for language and theme, which apply before log-in, too."""
    secure = settings.SESSION_COOKIE_SECURE
    for name, value in ((settings.LANGUAGE_COOKIE_NAME, row.language), ("theme", row.theme)):
        if value:
            response.set_cookie(name, value, max_age=A_YEAR_S, samesite="Lax", secure=secure)
        else:
            response.delete_cookie(name)
    return response


def with_choices(response: HttpResponse, user) -> HttpResponse:
    """Apply the user's saved language and theme to the browser they log in with."""
    row = Preference.objects.filter(user=user).first()
    return _with_cookies(response, row) if row is not None and (row.language or row.theme) else response


@login_required
@never_cache
@require_GET
def notifications(request):
    page = page_of(request, Notice.objects.filter(user=request.user))
    rows = [{"notice": row, "url": address_of(row)} for row in page.object_list]
    newest = Notice.objects.filter(user=request.user).values_list("pk", flat=True).first()
    return render(request, "accounts/notifications.html", {"page": page, "rows": rows, "newest": newest or 0})


def address_of(notice: Notice) -> str:
    """Return the address of the notice's object, "" where it has no page."""
    if notice.kind == "share":
        return reverse("shared")
    if notice.link:
        return notice.link
    for args in ([notice.name], notice.name.split("/")):  # the run of a pipeline is named nightly/3
        with contextlib.suppress(NoReverseMatch):
            return reverse(notice.kind, args=args)
    return ""


@login_required
@require_POST
def read(request):
    """Mark all notifications up to `newest` as read, the newest that the page has shown."""
    newest = request.POST.get("newest", "")
    if newest.isascii() and newest.isdigit() and len(newest) < 18:
        notices.mark_read(request.user, int(newest))
    return redirect("notifications")
