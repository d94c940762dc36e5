"""Saved comparisons: the only writer of Comparison. Called by its pages and REST."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import IntegrityError, transaction
from django.db.models import Prefetch, QuerySet
from django.http import QueryDict

from accounts import lifecycle as accounts
from jobs.models import ComparedRun, Comparison, Job
from jobs.summaries import labels
from kernel import after_commit
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, lock_row

MAX_JOBS = 50
MAX_COMPARISONS = 500
# What the page's address may say beside the runs; see mlp/static/mlp/compare/plots.js.
SETTINGS = ("only", "axis", "scatter-x", "scatter-y")
MAX_QUERY = 8000


def rows_of(user) -> QuerySet[Comparison]:
    """Return the user's comparisons with their runs, newest first."""
    return with_runs(Comparison.objects.filter(user=user).order_by("-pk"))


def with_runs(rows: QuerySet[Comparison]) -> QuerySet[Comparison]:
    runs = ComparedRun.objects.select_related("job").only("place", "comparison", "job__name", "job__trashed")
    return rows.select_related("user").prefetch_related(Prefetch("rows", queryset=runs))


def require_room(user) -> None:
    """Raise Refused for a user who has as many comparisons as are allowed."""
    if Comparison.objects.filter(user=user).count() >= MAX_COMPARISONS:
        raise Refused("you have %(limit)s comparisons, the most that are allowed", limit=MAX_COMPARISONS)


def save(user, *, name: str, jobs: Sequence[str] | None, query: str = "", replace: bool = False) -> Comparison:
    """Save the comparison of the user's jobs of these names; `replace`: also where there is one of that name, whose
    runs are kept, those in the trash included, where `jobs` is None.

    Raises Missing, Refused.
    """
    labels.comparison_name(name)
    kept = settings_of(query)
    try:
        with transaction.atomic():
            accounts.hold_active(user)
            rows = None if jobs is None else _runs(user, jobs)
            row = lock_row(Comparison, user=user, name=name) if replace else None
            if row is None and rows is None:
                raise Missing("comparison")
            if row is None:
                require_room(user)
                row = Comparison(user=user, name=name)
            row.query = kept
            row.save()
            if rows is not None:
                ComparedRun.objects.filter(comparison=row).delete()
                ComparedRun.objects.bulk_create(
                    ComparedRun(comparison=row, job=job, place=place) for place, job in enumerate(rows)
                )
            after_commit.changed(user.username, "comparison", name)
    except IntegrityError as problem:
        if violated(problem) == "comparison_name_once_per_user":
            raise Refused("you already have a comparison named %(name)s", field="name", name=name) from None
        _runs(user, jobs or ())  # one of them may have been deleted meanwhile
        raise
    return rows_of(user).get(pk=row.pk)


def edit(user, name: str, *, jobs: Sequence[str] | None = None, query: str | None = None) -> Comparison:
    """Change the runs or the settings of a comparison. Raises Missing, Refused."""
    row = find(user, name)
    return save(user, name=name, jobs=jobs, query=row.query if query is None else query, replace=True)


def find(user, name: str) -> Comparison:
    """Return the user's comparison. Raises Missing."""
    row = rows_of(user).filter(name=name).first()
    if row is None:
        raise Missing("comparison")
    return row


def delete(user, name: str) -> None:
    """Delete a comparison, and with it its shares; the runs stay. Raises Missing."""
    find(user, name).delete()
    after_commit.changed(user.username, "comparison", name)


def settings_of(query: str) -> str:
    """Return the part of an address's query that a comparison keeps. Raises Refused."""
    if len(query) > MAX_QUERY:
        raise Refused("must have at most %(limit)s characters", field="query", limit=MAX_QUERY)
    given, kept = QueryDict(query.lstrip("?")), QueryDict(mutable=True)
    for key in SETTINGS:
        kept.setlist(key, given.getlist(key))
    return kept.urlencode()


def _runs(user, names: Sequence[str]) -> list[Job]:
    names = list(dict.fromkeys(names))
    if not 1 <= len(names) <= MAX_JOBS:
        raise Refused("must be the names of 1 to %(limit)s jobs", field="jobs", limit=MAX_JOBS)
    jobs_by_name = {job.name: job for job in Job.objects.filter(user=user, name__in=names, trashed=None)}
    for name in names:
        if name not in jobs_by_name:
            raise Refused("you have no job named %(name)s", field="jobs", name=name)
    return [jobs_by_name[name] for name in names]
