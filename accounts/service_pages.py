"""The page of a user's service accounts: a list, and a form for a new one. Their tokens are on accounts.token_pages."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from kernel.pages import Problems, attempt, problems_of, why_not

from . import service_accounts
from .models import Token


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def accounts(request):
    """List the service accounts; a POST creates one and leads to its tokens."""
    name, problems = request.POST.get("name", "").strip(), Problems()
    if request.method == "POST":
        user = request.user
        problems = problems_of(lambda: service_accounts.create(owner=user, name=name, by=user.username), ("name",))
        if not problems:
            messages.success(
                request, _("The service account %(name)s is created. Now make it a token.") % {"name": name}
            )
            return redirect("service_accounts")
    named = Count("tokens", filter=Q(tokens__kind=Token.Kind.NAMED))
    rows = service_accounts.accounts_of(request.user).annotate(n_tokens=named)
    context = {"rows": rows, "name": name, "problems": problems}
    context["full"] = why_not(lambda: service_accounts.require_room(request.user))
    return render(request, "accounts/service.html", context, status=problems.status if problems else 200)


@login_required
@require_POST
def end(request):
    """Deactivate one of the user's service accounts."""
    name = request.POST.get("name", "")
    problem = attempt(lambda: service_accounts.end(owner=request.user, name=name, by=request.user.username))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("The service account %(name)s is deactivated.") % {"name": name})
    return redirect("service_accounts")
