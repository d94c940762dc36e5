"""Outputs of other jobs that a job reads: {"DATA": "prepare/data"}, a job of the user's and a path in its output."""

from __future__ import annotations

import re

from django.db.models import Q
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.models import Job, Origin, State
from kernel import names, storage
from kernel.errors import Refused
from kernel.fields import Invalid
from runners import owned

MAX_INPUTS, MAX_INPUT = 50, 500
INPUT_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,49}")


@extend_schema_field(
    {
        "type": "object",
        "maxProperties": MAX_INPUTS,
        "additionalProperties": {"type": "string", "maxLength": MAX_INPUT},
    }
)
class InputsField(serializers.Field):
    """Outputs of other jobs by the name of the input."""

    def to_internal_value(self, data):
        try:
            return inputs_of(data, self.field_name)
        except Refused as refused:
            raise Invalid(refused.problem)

    def to_representation(self, value):
        return value


def inputs_of(given: object, field: str = "inputs") -> dict[str, str]:
    """Return inputs by name, `job` or `job/path` each. Raises Refused."""
    if not isinstance(given, dict) or len(given) > MAX_INPUTS:
        raise Refused("must be an object of at most %(most)s inputs", field=field, most=MAX_INPUTS)
    for name, source in given.items():
        if not INPUT_NAME.fullmatch(name):
            raise Refused("an input is named by capital letters, digits and _", field=f"{field}.{name[:50]}")
        if not isinstance(source, str) or len(source) > MAX_INPUT:
            raise Refused("must be a job and a path, as in prepare/data", field=f"{field}.{name}")
        job, _slash, path = source.partition("/")
        names.name(job, f"{field}.{name}")
        if path:
            names.file_path(path)
    return given


def need_inputs(user, inputs: dict[str, str]) -> None:
    """Raise Refused unless each input is the output of a job of the user's that has finished."""
    for name, source in inputs.items():
        job = source.partition("/")[0]
        row = _finished(user, source)
        if row is None or row.trashed is not None:
            raise Refused("you have no finished job named %(job)s", field=f"inputs.{name}", job=job)
        if row.output_removed is not None:
            raise Refused("the output of the job %(job)s has been removed", field=f"inputs.{name}", job=job)
        if not _is_there(user, source):
            raise Refused("the job has no output %(source)s", field=f"inputs.{name}", source=source)


def gone_input(job: Job) -> str:
    """Return an input that is not there any more, or whose job is not; "" where all are."""
    given = job.job_inputs.values()
    return next((each for each in given if not (_has_writer(job.user, each) and _is_there(job.user, each))), "")


def unended_input(job: Job) -> str:
    """Return the name of a job whose output is an input, and which has reported its end but not exited; "" for none.

    Until then it changes what it has written, at any moment. Raises RunnerError.
    """
    given = (_finished(job.user, source) for source in job.job_inputs.values())
    return next((row.name for row in given if row is not None and owned.has_processes(row.run_name)), "")


def waiting_for(job: Job) -> list[int]:
    """Return the jobs that have their resources, and may have waited for this one to exit."""
    readers = Job.objects.filter(user=job.user_id, state=State.CREATING, reserved=True, run_started=False)
    given = readers.exclude(job_inputs={}).values_list("pk", "job_inputs")
    return [pk for pk, inputs in given if any(source.partition("/")[0] == job.name for source in inputs.values())]


def _finished(user, source: str) -> Job | None:
    return Job.objects.filter(user=user, name=source.partition("/")[0], state=State.FINISHED).first()


def _has_writer(user, source: str) -> bool:
    """Return whether the job is the one that has finished. A client's may run again; it has no processes here."""
    ours = Job.objects.filter(user=user, name=source.partition("/")[0])
    return ours.filter(Q(state=State.FINISHED) | Q(origin=Origin.CLIENT)).exists()


def _is_there(user, source: str) -> bool:
    job, _slash, path = source.partition("/")
    folder = storage.job_dir(user.username, job)
    return storage.status(folder, path) is not None if path else folder.is_dir()
