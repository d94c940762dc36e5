"""The page of a user's named tokens: a list, a form, and the text of a new one, which is shown once."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from kernel.errors import Refused
from kernel.locking import Missing
from kernel.pages import attempt, number_in, problems_of, why_not
from kernel.registering import Registry, lines_of

from . import named_tokens, service_accounts
from .models import TARGETED, Scope

DAYS = (7, 30, 90, 365)
USUAL_DAYS = 90
FIELDS = ("name", "scope", "target", "days", "registry", "registry_models")


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def tokens(request):
    """List the tokens; a POST makes one and shows its text."""
    created: list[tuple] = []
    problems = None
    account = _account(request)
    given = {key: request.POST.get(key, "").strip() for key in FIELDS}
    if request.method == "POST":
        problems = problems_of(lambda: created.append(_create(request, account, given)), FIELDS)
    row, text = created[0] if created else (None, "")
    context = {
        "created": row,
        "token": text,
        "rows": named_tokens.tokens_of(account),
        "account": account,
        "full": why_not(lambda: named_tokens.require_room(account)),
        "scopes": Scope.choices,
        "registries": Registry.choices,
        "targeted": " ".join(TARGETED),
        "days": DAYS,
        "given": given if problems else {"days": str(USUAL_DAYS), "scope": Scope.READ, "registry": Registry.VERSIONS},
        "problems": problems,
        "now": timezone.now(),
        "soon": timezone.now() + named_tokens.SOON,
    }
    return render(request, "accounts/tokens.html", context, status=problems.status if problems else 200)


def _account(request):
    """Return whose tokens the page shows: the user's, or those of their service account that it names."""
    name = request.POST.get("account") or request.GET.get("account", "")
    try:
        return service_accounts.get(request.user, name) if name else request.user
    except Missing:
        raise Http404 from None


def _create(request, user, given: dict[str, str]):
    days = number_in(given["days"]) if given["days"] else None
    if given["days"] and days is None:
        raise Refused("must be a whole number", field="days")
    target = given["target"] if given["scope"] in TARGETED else ""  # the field is there for every scope
    registry, names = given["registry"] or Registry.VERSIONS, lines_of(given["registry_models"])
    return named_tokens.create(
        user=user, name=given["name"], scope=given["scope"], target=target, days=days, registry=registry,
        registry_models=names, by=request.user.username,
    )  # fmt: skip


@login_required
@require_POST
def revoke(request):
    """Revoke one of the user's tokens."""
    name = request.POST.get("name", "")
    account = _account(request)
    problem = attempt(lambda: named_tokens.revoke(user=account, name=name, by=request.user.username))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("The token %(name)s is revoked.") % {"name": name})
    return redirect(reverse("tokens") + ("" if account == request.user else f"?account={account.username}"))
