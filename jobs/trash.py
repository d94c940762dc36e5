"""The trash: ended runs can be restored from it for MLP_TRASH_DAYS days, or those of the tenant, then they are deleted.

A run that an MLflow client reports can be moved there while it runs; it is ended before it is deleted.

Runs that are moved together have the same time, by which they are restored together ("undo"). The state of a run does
not change, and its name stays taken. Reports that arrive late are still stored.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone

from jobs import lifecycle
from jobs.bulk import Done, each_chunk, one_by_one
from jobs.models import ENDED, Job, Origin, Project, State
from kernel import clock, healing
from kernel.errors import Refused
from kernel.locking import WrongState
from kernel.models import StateChange
from resources import retention

PURGED = 200  # of one round
MOVABLE = Q(state__in=ENDED) | Q(state=State.RUNNING, origin=Origin.CLIENT)  # to the trash, and back
TRASH, RESTORE = "trash", "restore"  # in the history


def trash(runs: QuerySet, user, by: str, at: datetime | None = None) -> tuple[Done, datetime]:
    """Move the runs that have ended to the trash. Return the time that they have in common."""
    at = at or timezone.now()

    def change(rows: QuerySet, _keys: list[int]) -> int:
        rows = rows.filter(MOVABLE, trashed=None)
        _note(rows, TRASH, by)
        return rows.update(trashed=at)

    return each_chunk(runs, user, change), at


def restore(runs: QuerySet, user, by: str) -> Done:
    """Restore runs from the trash, except those that are being deleted or whose project is in the trash."""

    def change(rows: QuerySet, _keys: list[int]) -> int:
        rows = rows.exclude(trashed=None).filter(MOVABLE, project__trashed=None)
        keys = list(rows.values_list("pk", flat=True))
        _note(rows, RESTORE, by)
        return Job.objects.filter(pk__in=keys).update(trashed=None)

    return each_chunk(runs, user, change)


def trash_one(job: Job, by: str) -> datetime:
    """Move one run to the trash; one that is there is not changed. Raises WrongState unless it has ended."""
    if not is_movable(job):
        raise WrongState("the job has not ended; cancel it before you delete it")
    return trash(Job.objects.filter(pk=job.pk), job.user, by)[1]


def restore_one(user, name: str, by: str) -> None:
    """Restore one run from the trash. Raises Refused with the reason if that is not possible."""
    runs = Job.objects.filter(user=user, name=name).exclude(trashed=None)
    job = runs.select_related("project").first()
    if job is None:
        raise Refused("the job is not in the trash", field="name")
    if not is_movable(job):
        raise Refused("the job is already being deleted", field="name")
    require_project(job)
    restore(runs, user, by)


def require_project(job: Job) -> None:
    """Raise Refused for a run whose project is in the trash, which is restored with its runs."""
    if job.project and job.project.trashed:
        raise Refused(
            "its project %(name)s is in the trash; restore the project", field="project", name=job.project.name
        )


def delete(runs: QuerySet, by: str) -> Done:
    """Delete runs in the trash permanently, as many as jobs.bulk.TIME_S allow. Their files are deleted first, in the
    background.
    """
    there = runs.exclude(trashed=None).filter(MOVABLE).select_related("user").order_by("pk")
    return one_by_one(there, lambda job: _delete(job, by))


def delete_one(job: Job, by: str) -> None:
    """Delete one run in the trash permanently. Raises WrongState if it has been restored since it was read."""
    _delete(job, by)


def purge() -> None:
    """Delete what has been in the trash for long enough; called by reconcile in each round."""
    now = timezone.now()
    before = clock.settled(now) - timedelta(days=settings.TRASH_DAYS)
    due = Job.objects.filter(MOVABLE, retention.trash_due(now)).select_related("user").order_by("trashed")
    healing.each(lambda job: _delete(job, "reconcile"), due[:PURGED])
    empty = Project.objects.filter(trashed__lt=before, jobs=None, traces=None)  # which tracking deletes, many at a time
    empty.delete()


def is_movable(job: Job) -> bool:
    """Return whether a run may go to the trash: it has ended, or an MLflow client reports it."""
    return job.state in ENDED or (job.state == State.RUNNING and job.is_client)


def _delete(job: Job, by: str) -> None:
    if job.state == State.RUNNING:
        lifecycle.cancel(user=job.user, name=job.name, by=by)
    lifecycle.delete_job(user=job.user, name=job.name, by=by, trashed=job.trashed)


def _note(rows: QuerySet, transition: str, by: str) -> None:
    """Write the history of locked runs."""
    StateChange.objects.bulk_create(
        StateChange(
            kind="job", owner=owner, name=name, object_id=pk, transition=transition, source=state, target=state, by=by
        )
        for pk, owner, name, state in rows.values_list("pk", "user__username", "name", "state")
    )  # fmt: skip
