"""The runs of a bulk action: those that are named, or all that match a filter."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import QueryDict

from jobs.models import Job, Project
from kernel.errors import Refused

from .table import Table

MAX_NAMED = 1000


def named(user, names: list[str]) -> QuerySet:
    """Return the user's runs of these names. Raises Refused for too many."""
    if len(names) > MAX_NAMED:
        raise Refused("at most %(limit)s runs can be named; use a filter for more", field="jobs", limit=MAX_NAMED)
    return Job.objects.filter(user=user, name__in=[name for name in names if "\x00" not in name])


def matching(user, query: QueryDict, project: Project | None) -> QuerySet:
    """Return all runs that a table shows on all its pages. Raises FilterError."""
    return Job.objects.filter(pk__in=Table(user, query, project).runs.order_by().values("pk"))
