"""The page of an application's callers: its keys with their use, forms, and the text of a new key, shown once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from django.conf import settings as django_settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from kernel.errors import Refused
from kernel.pages import app_address, attempt, number_in, problems_of, why_not
from kernel.registering import lines_of

from . import callers, keys, request_limits
from .models import AppKey, Application
from .serializers import AppAccessIn

DAYS = (7, 30, 90, 365)
USUAL_DAYS = 90
KEPT = "kept"  # of the end of a key, in the form that changes one
NUMBERS = ("address_rate", "body_mib", "answer_s")
LIMITS = ("rate", "day_tokens")  # of a key
FIELDS = ("name", "days", *LIMITS)
HEIGHT = 24  # of a chart


@dataclass(frozen=True)
class Bar:
    """The use of one day, and the bar that shows its requests: its left edge, top and height in a chart's own units."""

    day: date
    requests: int
    tokens: int
    x: int
    y: float
    height: float


def bars_of(days: list[keys.Day]) -> list[Bar]:
    """Return a bar for each day, the highest as high as the chart."""
    most = max((use.requests for use in days), default=0) or 1
    heights = [HEIGHT * use.requests / most for use in days]
    return [
        Bar(use.day, use.requests, use.tokens, x, round(HEIGHT - height, 2), round(height, 2))
        for x, (use, height) in enumerate(zip(days, heights, strict=True))
    ]


def _own(request, name: str) -> Application:
    rows = Application.objects.filter(user=request.user, name=name, trashed=None)
    app = rows.select_related("user", "model").first()
    if app is None:
        raise Http404
    return app


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def access(request, name):
    """List the keys; a POST makes one and shows its text."""
    app = _own(request, name)
    created: list[tuple[AppKey, str]] = []
    problems = None
    given = {key: request.POST.get(key, "").strip() for key in FIELDS}
    if request.method == "POST":
        problems = problems_of(lambda: created.append(_create(request, app, given)), FIELDS)
    row, text = created[0] if created else (None, "")
    return _page(request, app, problems, created=row, key=text, given=given if problems else None)


@login_required
@require_POST
def change(request, name):
    """Save what the application's callers may do."""
    app = _own(request, name)
    given = {field: request.POST.get(field, "").strip() for field in AppAccessIn().fields if field in request.POST}
    problems = problems_of(lambda: _change(request, app, given), AppAccessIn().fields)
    if problems:
        return _page(request, app, problems, settings=given)
    messages.success(request, _("The settings are saved."))
    return redirect("application_access", name=name)


def _page(request, app: Application, problems=None, *, given=None, settings=None, **extra):
    rows = list(keys.keys_of(app))
    days = keys.days_of(rows)
    for one in rows:
        one.bars, one.today = bars_of(days[one.pk]), days[one.pk][-1]
    context = {
        "app": app,
        "base": f"{app_address(request)}/{app.user.username}/{app.name}",
        "rows": rows,
        "full": why_not(lambda: keys.require_room(app)),
        "days": DAYS,
        "shown_days": keys.SHOWN_DAYS,
        "given": given or {"days": str(USUAL_DAYS)},
        "settings": settings or {field: getattr(app, field) for field in NUMBERS} | {"origins": "\n".join(app.origins)},
        "most_rate": request_limits.MAX,
        "most_tokens": keys.MAX_DAY_TOKENS,
        "speaks": app.model.is_language_model,
        "most_mib": callers.BODY_MIB,
        "most_s": django_settings.APP_ANSWER_S,
        "problems": problems,
        "now": timezone.now(),
        **extra,
    }
    return render(request, "apps/access.html", context, status=problems.status if problems else 200)


def _create(request, app: Application, given: dict[str, str]) -> tuple[AppKey, str]:
    numbers = {field: _number(field, given[field]) for field in ("days", *LIMITS)}
    return keys.create(app=app, name=given["name"], by=request.user.username, **numbers)


def _number(field: str, text: str) -> int | None:
    """Return the number in a field of the form, None for an empty one. Raises Refused."""
    if not text:
        return None
    if (number := number_in(text)) is None:
        raise Refused("must be a whole number", field=field)
    return number


def _change(request, app: Application, given: dict[str, str]) -> None:
    values = {field: _number(field, text) for field, text in given.items() if field in NUMBERS}
    if "origins" in given:
        values["origins"] = lines_of(given["origins"])
    values = AppAccessIn.read(values)
    callers.set_access(user=app.user, name=app.name, by=request.user.username, **values)


@login_required
@require_POST
def change_key(request, name):
    """Change the end or the limits of one of the application's keys."""
    app, key = _own(request, name), request.POST.get("name", "")
    given = {field: request.POST[field].strip() for field in ("days", *LIMITS) if field in request.POST}
    values = {field: text for field, text in given.items() if (field, text) != ("days", KEPT)}

    def save() -> None:
        numbers = {field: _number(field, text) for field, text in values.items()}
        keys.change(app=app, name=key, by=request.user.username, **numbers)

    problem = attempt(save)
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("The key %(name)s is changed.") % {"name": key})
    return redirect("application_access", name=name)


@login_required
@require_POST
def revoke(request, name):
    """Revoke one of the application's keys."""
    app, key = _own(request, name), request.POST.get("name", "")
    problem = attempt(lambda: keys.revoke(app=app, name=key, by=request.user.username))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("The key %(name)s is revoked.") % {"name": key})
    return redirect("application_access", name=name)
