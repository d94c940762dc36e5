"""The search over a user's named objects with a page, and scripts. Keyboard shortcut: `/`."""

from __future__ import annotations

from itertools import islice

from django.apps import apps
from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from accounts.sharing.kinds import KINDS
from jobs.models import Project
from kernel import storage
from kernel.titles import Titled

MAX = 8  # of each kind in the list below the search field
MAX_ON_PAGE = 50
MAX_SCRIPTS = 5000


@login_required
@never_cache
@require_GET
def search(request):
    """Show the search results; htmx requests of the search field get the list only."""
    query = request.GET.get("q", "").strip().replace("\x00", "")[:50]
    brief = request.headers.get("HX-Request") == "true"
    groups = results(request.user, query, MAX if brief else MAX_ON_PAGE) if query else []
    template = "_search_results.html" if brief else "search.html"
    return render(request, template, {"q": query, "groups": groups})


def results(user, query: str, most: int) -> list[dict]:
    """Return [{kind, rows: [(name, address, object)]}] of the user's own objects, newest first."""
    groups = []
    for model in searchable_models():
        shown = getattr(model, "kept", model._default_manager)  # not what is in the trash
        if model is Project:
            shown = shown.filter(trashed=None)
        named = Q(name__icontains=query)
        if issubclass(model, Titled):
            named |= Q(title__icontains=query)
        rows = shown.filter(named, user=user).order_by("-pk")[:most]
        matches = [
            (getattr(row, "shown_name", row.name), reverse(_page_of(model), args=[row.name]), row) for row in rows
        ]
        groups.append({"kind": model._meta.verbose_name_plural, "rows": matches})
    paths = (path for path, _ in islice(storage.files(storage.home_dir(user.username)), MAX_SCRIPTS))
    scripts = islice((path for path in paths if query.lower() in path.lower()), most)
    groups.append({"kind": "scripts", "rows": [(path, reverse("script", args=[path]), None) for path in scripts]})
    return [group for group in groups if group["rows"]]


def searchable_models() -> list:
    """Return the models whose rows have an owner, a name, and a page; those with a state, and what can have a title."""
    return [model for model in apps.get_models() if _has_page(model)]


def _page_of(model) -> str:
    """Return the URL name of the page of one of its rows."""
    name = model._meta.model_name
    return KINDS[name].page if name in KINDS else name


def _has_page(model) -> bool:
    fields = {field.name for field in model._meta.get_fields()}
    if not {"user", "name"} <= fields or not ("state" in fields or issubclass(model, Titled)):
        return False
    try:
        reverse(_page_of(model), args=["name"])
    except NoReverseMatch:
        return False
    return True
