"""Runs that an MLflow client reports from elsewhere: they are created, end and go on here.

Such a run is a job's row without a process: it is born running, reserves nothing, and ends when its client says so.
Nobody knows whether a client that is silent still runs, so its run stays running until it is ended by hand.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import User
from accounts.tenancy import members
from jobs import lifecycle
from jobs.models import ENDED, Job, Origin, Project, State
from jobs.summaries import colours
from kernel import after_commit
from kernel.errors import Refused
from kernel.locking import locked
from kernel.messages import Message
from kernel.models import record_created
from kernel.names import letters_of
from kernel.outcomes import Outcome
from resources.models import Tenant

FAILED = Message("reported by the MLflow client")
MAX_NAME = 500
MAX_SLUG, MARK = 40, 10  # letters of a run's name: of its title, and of its id
RUNNING, SCHEDULED, FINISHED, ERROR, KILLED = "running", "scheduled", "finished", "error", "killed"
MARKED = "platform.scheduled"  # a system tag of a running run that its client calls scheduled


def create(
    user: User,
    project: Project,
    *,
    title: str,
    started: datetime,
    by: str,
    tags: dict[str, str] | None = None,
    system_tags: dict[str, str] | None = None,
    notes: str = "",
    parent: Job | None = None,
    entry: str = "",
    run_id: uuid.UUID | None = None,
    state: str = RUNNING,
    ended: datetime | None = None,
    tenant: str | None = None,
    within: Tenant | None = None,
) -> Job:
    """Create a run, in the user's default tenant unless another is named, or in that `within`, the one of the job that
    creates it. `entry` is the script of the job that it was created in. One that is brought from another server
    has its id and its end from there. Raises Refused.
    """
    run_id = run_id or uuid.uuid4()
    fields = {
        "user": user, "project": project, "origin": Origin.CLIENT, "state": State.RUNNING,
        "title": title, "started": started, "tags": tags or {}, "system_tags": system_tags or {}, "notes": notes,
        "parent": parent, "entry": entry, "run_id": run_id, "attempt": 1, "heard": timezone.now(),
        "gpu": 0, "cpu": 0, "ram": 0, "diagnosed": True, **_end_of(state, ended),
    }  # fmt: skip
    return _insert(user, tenant, within, _name(title, run_id), by, fields)


def _end_of(state: str, ended: datetime | None) -> dict:
    """Return the fields of a run that is created with its end; none for a running one."""
    if state == RUNNING:
        return {}
    ended = ended or timezone.now()
    if state == FINISHED:
        return {
            "state": State.FINISHED, "outcome": Outcome.FINISHED, "progress": 100, "ended": ended, "heard": ended,
        }  # fmt: skip
    return {"state": State.ERROR, **_failure(state), "ended": ended, "heard": ended}


def _failure(state: str) -> dict:
    """Return the reason and the outcome of a run that its client calls killed or failed."""
    if state == KILLED:
        return {"reason": lifecycle.CANCELLED, "outcome": Outcome.CANCELLED}
    return {"reason": FAILED, "outcome": Outcome.FAILED}


def _insert(user: User, tenant: str | None, within: Tenant | None, name: str, by: str, fields: dict) -> Job:
    with transaction.atomic():
        if within is None:
            fields["tenant"] = members.hold(user, tenant)
        else:
            accounts.hold_active(user)
            fields["tenant"] = within
        job = Job.objects.create(name=name, colour=colours.following(user), **fields)
        if job.project.trashed is not None:
            raise Refused("the project is in the trash", field="project")
        record_created(job, by=by)
    return job


def _name(title: str, run_id: uuid.UUID) -> str:
    """Return the name of a run: the letters of its title, and ten that its id gives. So a run, which may be called as
    any other, never takes a name that its user may want for a job, and none that a job has.
    """
    name, number = letters_of(title[:MAX_NAME])[:MAX_SLUG] or "run", run_id.int
    for _ in range(MARK):
        number, rest = divmod(number, 26)
        name += chr(ord("a") + rest)
    return name


def report(pk: int, *, state: str = "", ended: datetime | None = None, title: str | None = None, by: str) -> Job:
    """Change a run as its client says. `state` is one of the words above; a job's own is that of its process."""
    with locked(Job, pk=pk) as job:
        if title is not None and title != job.title:
            job.title = title
            job.save(update_fields=["title"])
            after_commit.changed(job.user.username, "job", job.name)
        if job.is_client and state in (RUNNING, SCHEDULED):
            _go_on(job, by, scheduled=state == SCHEDULED)
        elif job.is_client and state in (FINISHED, ERROR, KILLED):
            _end(job, state, ended, by)
    return job


def _go_on(job: Job, by: str, *, scheduled: bool) -> None:
    """Let a locked run be running, or scheduled, which is running for all but MLflow's clients."""
    marked = job.system_tags.pop(MARKED, None) is not None
    if scheduled:
        job.system_tags[MARKED] = "true"
    if job.state in ENDED:
        job.resume(by=by)
        job.has_more()
        job.ended = None
    elif marked == scheduled:
        return
    job.save()
    after_commit.wake("job", job.pk)


def _end(job: Job, state: str, ended: datetime | None, by: str) -> None:
    """End a locked run; one that has ended gets the new end."""
    job.system_tags.pop(MARKED, None)
    if job.state in ENDED:
        if _word(job) == state:
            if ended is not None:
                job.ended = ended
                job.save(update_fields=["ended"])
            return
        job.resume(by=by)
        job.has_more()
    if state == FINISHED:
        job.finish(by=by)
    else:
        job.fail(by=by, **_failure(state))
    job.ended = ended or timezone.now()
    job.save()
    after_commit.wake("job", job.pk)


def _word(job: Job) -> str:
    return KILLED if job.was_stopped else job.state


def end_nested(job: Job) -> None:
    """End the runs that a job has created in itself, and that still run when it has ended."""
    state = FINISHED if job.state == State.FINISHED else KILLED if job.was_stopped else ERROR
    nested = Job.objects.filter(parent=job, origin=Origin.CLIENT, state=State.RUNNING, entry=F("parent__entry"))
    for pk in list(nested.order_by("pk").values_list("pk", flat=True)):
        report(pk, state=state, by="job")
