"""Where a model comes from, as it was when the model was created."""

from __future__ import annotations

import math

from datasets import sources
from jobs.code import capture
from jobs.models import Job
from tracking.metrics.series import MEASURED


def of_job(job: Job | None) -> dict:
    """Return the origin of a model as of now: the job, its datasets with their sizes, its last metrics."""
    if job is None:
        return {}
    pins = capture.pinned(job)
    return {
        "job": job.name,
        "entry": job.entry,
        "args": job.args,
        "runtime": job.runtime,
        "datasets": [
            {"name": name, "size": sources.size_of(job.user, name, pins.get(name)), **_pin(pins.get(name))}
            for name in job.datasets
        ],
        "metrics": _last_metrics(job),
        "ended": job.ended.isoformat() if job.ended else None,
    }


def _pin(version: int | None) -> dict:
    return {"version": version} if version is not None else {}


def _last_metrics(job: Job) -> dict:
    """Return the last accuracy and loss that the job has reported, the best accuracy, and the epoch of the last report;
    what was not reported, or is not finite, is left out.
    """
    summaries = {row.name: row for row in job.summaries.filter(name__in=MEASURED) if math.isfinite(row.last)}
    last = {name: row.last for name, row in summaries.items()}
    steps = [row.step for row in summaries.values()]
    best = {"best_accuracy": summaries["accuracy"].max} if "accuracy" in summaries else {}  # finite, as the last one is
    return {**({"epoch": max(steps)} if steps else {}), **last, **best}
