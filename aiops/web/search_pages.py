"""The page of saved searches: run, share, delete them, and save the filters of the page of log lines."""

from __future__ import annotations

from functools import partial

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from accounts.tenancy import members
from aiops.judging import searches
from aiops.models import SavedSearch
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.pages import attempt, number_in, page_of, why_not

from .alerts_serializers import SearchIn


@login_required
@require_http_methods(["GET", "POST"])
def saved(request):
    """List the searches that the user can run; a POST saves, shares or deletes one."""
    if request.method == "POST":
        problem = attempt(lambda: messages.success(request, _do(request)))
        if problem:
            messages.error(request, problem)
        return redirect("aiops_searches")
    page = page_of(request, searches.visible(request.user).prefetch_related("rules"))
    for row in page.object_list:
        row.address = f"{reverse('aiops')}?{urlencode(row.filters)}"
        row.mine = row.owner_id == request.user.pk
        row.changeable = row.mine or request.user.is_administrator
        row.undeletable = why_not(partial(searches.require_unused, row)) if row.changeable else ""
    context = {"page": page, "tenants": members.open_to(request.user)}
    return render(request, "aiops/searches.html", context)


def _do(request) -> str:
    """Do what was asked for; return what to tell. Raises Refused."""
    wish, _colon, number = request.POST.get("do", "").partition(":")
    if wish == "save":
        _save(request)
        return _("Search saved.")
    if wish not in ("share", "delete"):
        raise Refused("must be save, share or delete", field="do")
    try:
        row: SavedSearch = searches.changeable(request.user, number_in(number))
    except Missing:
        raise Refused("this search no longer exists")
    if wish == "delete":
        searches.delete(row)
        return _("Search deleted.")
    searches.change(row, {"tenant": request.POST.get("tenant", "")})
    return _("Search shared.") if request.POST.get("tenant") else _("Search no longer shared.")


def _save(request) -> None:
    filters = {name: request.POST[name] for name in searches.FILTERS if request.POST.get(name)}
    values = SearchIn.read({"name": request.POST.get("name", "").strip(), "filters": filters})
    searches.create(user=request.user, replace="replace" in request.POST, **values)
