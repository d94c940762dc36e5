"""Writes RunParam rows."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.models import Job, RunParam, Source

from . import arguments


def rows_of(job_pk: int, user_pk: int, values: Mapping[str, str], source: str = Source.ARGUMENT) -> list[RunParam]:
    """Return the unsaved rows of a run's parameters."""
    return [
        RunParam(
            job_id=job_pk, user_id=user_pk, name=name, text=text, number=arguments.number(text), source=source
        )
        for name, text in values.items()
    ]  # fmt: skip


def keep_arguments(job: Job) -> None:
    """Store a new job's arguments; called in the transaction that creates it."""
    rows = rows_of(job.pk, job.user_id, arguments.parsed(job.args))
    if rows:
        RunParam.objects.bulk_create(rows)
