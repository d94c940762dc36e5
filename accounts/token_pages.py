"""The page of a user's named tokens: a list, a form, and the text of a new one, which is shown once."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from kernel.errors import Refused
from kernel.pages import attempt, number_in, problems_of

from . import named_tokens
from .models import TARGETED, Scope

DAYS = (7, 30, 90, 365)
USUAL_DAYS = 90
FIELDS = ("name", "scope", "target", "days")


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def tokens(request):
    """List the tokens; a POST makes one and shows its text."""
    made: list[tuple] = []
    problems = None
    given = {key: request.POST.get(key, "").strip() for key in FIELDS}
    if request.method == "POST":
        problems = problems_of(lambda: made.append(_create(request.user, given)), FIELDS)
    row, text = made[0] if made else (None, "")
    context = {
        "made": row,
        "token": text,
        "rows": named_tokens.of(request.user),
        "scopes": Scope.choices,
        "targeted": " ".join(TARGETED),
        "days": DAYS,
        "given": given if problems else {"days": str(USUAL_DAYS), "scope": Scope.READ},
        "problems": problems,
        "now": timezone.now(),
        "soon": timezone.now() + named_tokens.SOON,
    }
    return render(request, "accounts/tokens.html", context, status=problems.status if problems else 200)


def _create(user, given: dict[str, str]):
    days = number_in(given["days"]) if given["days"] else None
    if given["days"] and days is None:
        raise Refused("must be a whole number", field="days")
    target = given["target"] if given["scope"] in TARGETED else ""  # the field is there for every scope
    return named_tokens.create(
        user=user, name=given["name"], scope=given["scope"], target=target, days=days, by=user.username
    )


@login_required
@require_POST
def revoke(request):
    """Revoke one of the user's tokens."""
    name = request.POST.get("name", "")
    problem = attempt(lambda: named_tokens.revoke(user=request.user, name=name, by=request.user.username))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("The token %(name)s is revoked.") % {"name": name})
    return redirect("tokens")
