"""Whose code a new job may be made from: that of an own job, or of another's that is shared with the right to clone."""

from __future__ import annotations

from accounts.sharing import access
from jobs.models import Job, Snapshot
from kernel.errors import Refused


def to_clone(visitor: access.Visitor, reference: str) -> Job | None:
    """Return the visitor's job of that name, or another's, `owner/name`, which the visitor may clone."""
    if not reference:
        return None
    owner, _slash, name = reference.rpartition("/")
    own = visitor.user.username if visitor.user is not None else ""
    rows = Job.objects.select_related("user", "tenant", "snapshot__user")
    job = access.look_up(visitor, rows, owner or own, name, access.CLONE)
    return None if job is not None and job.is_client else job


def code_of(visitor: access.Visitor, reference: str) -> Snapshot | None:
    """Return the code of a job that the visitor may clone; None for an own job of an earlier release, whose code was
    not kept. Raises Refused.
    """
    job = to_clone(visitor, reference)
    if job is None and "/" in reference:
        raise Refused("no job %(name)s is shared with you with the right to clone", field="code_from", name=reference)
    if job is None:
        raise Refused("you have no job named %(name)s", field="code_from", name=reference)
    if job.snapshot is None and job.reading is not None:
        raise Refused("the code of %(name)s was not kept", field="code_from", name=reference)
    return job.snapshot


def hidden_variables(job: Job) -> list[str]:
    """Return the names of the environment variables whose values a clone does not get: a reader does not see them."""
    return sorted(job.env) if job.reading is not None else []
