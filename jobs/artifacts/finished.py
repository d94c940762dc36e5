"""The output of a finished job, as the source of a model or a dataset (kernel.copying), or of an export."""

from __future__ import annotations

from datasets.exports.sources import Source
from jobs.models import Job, State
from kernel import copying
from kernel.errors import Refused
from kernel.messages import word
from runners import owned


def finished_job(user, name: str) -> Job:
    """Return the user's job of that name. Raises Refused unless it has finished, and its output is there."""
    job = Job.objects.filter(user=user, name=name).first()
    if job is None:
        raise Refused("you have no job named %(name)s", field="src", name=name)
    if job.state != State.FINISHED:
        raise Refused(
            "the job %(name)s is %(state)s; its output is available once it has finished",
            field="src", name=name, state=word(job.state),
        )  # fmt: skip
    if job.output_removed is not None:
        raise Refused("the output of the job %(job)s has been removed", field="src", job=name)
    return job


def may_still_write(user, name: str) -> bool:
    """Return whether the job has reported its end but not exited. Raises RunnerError."""
    job = Job.objects.filter(user=user, name=name).first()
    return job is not None and job.has_ended and owned.has_processes(job.run_name)


def is_to_come(user, name: str) -> bool:
    """Return whether the job has not ended yet."""
    job = Job.objects.filter(user=user, name=name).first()
    return job is not None and not job.has_ended


def to_export(user, rest: str) -> Source:
    """Return what an export sends of `{job}[/{path}]`. Raises Refused, RunnerError."""
    src = f"jobs/{rest}"
    _kind, name, _path = copying.parse(src)
    job = finished_job(user, name)
    return Source(src, job.pk, copying.origin(user.username, src), may_still_write(user, name))
