"""Saved views: tables of runs that a user has saved under a name."""

from __future__ import annotations

from django.db import transaction
from django.http import QueryDict

from accounts import lifecycle as accounts
from jobs.models import Project, View
from kernel.errors import Refused

from .table import Table

MAX_VIEWS = 500


def require_room(user) -> None:
    """Raise Refused for a user who has as many views as are allowed."""
    if View.objects.filter(user=user).count() >= MAX_VIEWS:
        raise Refused("you have %(limit)s views, the most that are allowed", limit=MAX_VIEWS)


def save(user, *, name: str, query: str, project: Project | None = None) -> View:
    """Save a view; one of the same name and project is replaced. Only the query parameters of the table are stored."""
    kept = Table(user, QueryDict(query.lstrip("?")), project).kept_query()
    with transaction.atomic():
        accounts.hold_active(user)
        require_room(user)
        return View.objects.update_or_create(user=user, project=project, name=name, defaults={"query": kept})[0]


def views_of(user, project: Project | None) -> list[View]:
    """Return the views of a table, by name."""
    return list(View.objects.filter(user=user, project=project).order_by("name"))


def delete(user, pk: int) -> bool:
    """Delete a view; return whether it existed."""
    return bool(View.objects.filter(user=user, pk=pk).delete()[0])
