"""Bulk changes of runs: tags, project, favourite, notes, visibility in charts, cancel (jobs.bulk says how)."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection, transaction
from django.db.models import QuerySet
from psycopg.types.json import Jsonb

from jobs import lifecycle
from jobs.bulk import Done, chunks, each_chunk, locked_jobs, one_by_one
from jobs.models import Job, Project, State
from jobs.queue import turns
from jobs.summaries import labels
from kernel import after_commit
from kernel.errors import Refused
from kernel.locking import Missing, lock_row, locked

LIVE = (State.CREATING, State.RUNNING)

TAG = """
UPDATE job SET tags = (tags - %s::text[]) || %s::jsonb WHERE id = ANY(%s)
AND (SELECT count(*) FROM jsonb_object_keys((tags - %s::text[]) || %s::jsonb)) <= %s
"""


def tag(runs: QuerySet, user, *, add: dict[str, str], remove: Iterable[str] = ()) -> Done:
    """Add tags to the runs and remove others. A run that would have too many tags is left unchanged."""
    gone, more = list(remove), Jsonb(labels.tags(add))

    def change(_rows: QuerySet, keys: list[int]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(TAG, [gone, more, keys, gone, more, labels.MAX_TAGS])
            return cursor.rowcount

    return each_chunk(runs, user, change)


def move(runs: QuerySet, user, name: str) -> Done:
    """Move the runs to another of the user's projects."""
    changed = 0
    for keys in chunks(runs):
        with transaction.atomic():
            project = _locked_project(user, name)
            with locked_jobs(keys) as rows:
                changed += rows.update(project=project)
            after_commit.changed(user.username, "job", "")
    return Done(changed)


def mark(runs: QuerySet, user, **marks: bool) -> Done:
    """Set or clear marks of the runs: `favourite`; `hidden`, in the charts of their project's board."""
    return each_chunk(runs, user, lambda rows, _keys: rows.update(**marks))


def show_only(runs: QuerySet, others: QuerySet, user) -> Done:
    """Show the runs in charts, and hide those of the others that are not among them."""
    chosen = list(runs.values_list("pk", flat=True))
    mark(others.filter(hidden=False).exclude(pk__in=chosen), user, hidden=True)
    return mark(Job.objects.filter(pk__in=chosen), user, hidden=False)


def cancel(runs: QuerySet, by: str) -> Done:
    """Cancel the runs that are queued or running, as many as jobs.bulk.TIME_S allow."""
    live = runs.filter(state__in=LIVE).order_by("pk").select_related("user")
    return one_by_one(live, lambda job: lifecycle.cancel(user=job.user, name=job.name, by=by))


def edit(user, name: str, **fields) -> Job:
    """Change what users say of a run: title, tags, notes, favourite, group, colour, visibility, project (by name),
    and its priority. Raises Refused for the priority of a job that is not in the queue.
    """
    with transaction.atomic():
        if "project" in fields:
            fields["project"] = _locked_project(user, fields["project"])
        with locked(Job, user=user, name=name) as job:
            if "priority" in fields and (job.state != State.CREATING or job.reserved):
                raise Refused("only a queued job has a place that can be changed", field="priority")
            for field, value in fields.items():
                setattr(job, field, value)
            if fields:
                job.save(update_fields=list(fields))
                after_commit.changed(user.username, "job", name)
            if "priority" in fields:
                after_commit.run("read the queue again", turns.reordered)
                after_commit.enqueue_once("jobs.admit")
    return job


def _locked_project(user, name: str) -> Project:
    """Return the user's project of that name, locked before any run: it goes to the trash with its runs, or not at all.
    Raises Missing.
    """
    project = lock_row(Project, user=user, name=name, trashed=None)
    if project is None:
        raise Missing("project")
    return project


def project_named(user, name: str) -> Project:
    """Return the user's project of that name. Raises Missing."""
    project = Project.objects.filter(user=user, name=name, trashed=None).first() if "\x00" not in name else None
    if project is None:
        raise Missing("project")
    return project
