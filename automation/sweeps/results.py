"""What the jobs of trials have reported: the steps of the objective while they run, the values when they ended."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from django.utils import timezone

from automation.models import Sweep, Trial, TrialState
from jobs.models import ENDED, Job, Metrics, RunMetric, State, Value
from kernel.errors import Fault
from kernel.messages import Message
from tracking.metrics import recording
from tracking.metrics.series import MEASURED

PATIENCE = timedelta(minutes=1)  # with the last reports of an ended job, while the message bus is unavailable
MAX_STEPS = 500  # of a trial that the pruner sees; of longer series every second, every fourth, …
AT_ONCE = 20_000  # rows of one look


class Result(NamedTuple):
    """How a trial has ended."""

    state: str
    reason: str = ""
    values: list | None = None


def has_ended(job: Job | None) -> bool:
    """Return whether the job has ended and all that it reported is stored. A job that is gone has ended."""
    if job is None or job.state == State.DELETING:
        return True
    if job.state not in ENDED:
        return False
    try:
        return recording.all_recorded(job)
    except Fault:
        return timezone.now() - job.ended > PATIENCE


def result_of(sweep: Sweep, trial: Trial) -> Result:
    """Return the result of a trial whose job has ended."""
    job = trial.job
    if job is None or job.state == State.DELETING:
        return Result(TrialState.FAILED, Message("its job was deleted"))
    if job.state == State.ERROR:
        state = TrialState.CANCELLED if job.was_stopped else TrialState.FAILED
        return Result(state, job.reason)
    by_metric = {
        row.name: row for row in RunMetric.objects.filter(job=job, name__in=[o["metric"] for o in sweep.objectives])
    }
    values = []
    for objective in sweep.objectives:
        row = by_metric.get(objective["metric"])
        if row is None:
            reason = Message("the script has ended without reporting %(metric)s", metric=objective["metric"])
            return Result(TrialState.FAILED, reason)
        value = getattr(row, _column(objective))
        if not math.isfinite(value):
            reason = Message("%(metric)s is %(value)s", metric=objective["metric"], value=str(value))
            return Result(TrialState.FAILED, reason)
        values.append(value)
    return Result(TrialState.COMPLETE, "", values)


def _column(objective: dict) -> str:
    if objective["statistic"] == "best":
        return "min" if objective["direction"] == "minimize" else "max"
    return objective["statistic"]


def gpu_seconds(job: Job | None) -> float:
    return (job.ran_for or 0.0) * job.gpu * job.workers if job is not None and job.gpu else 0.0


# --- steps ------------------------------------------------------------------------------------------------------------
def new_steps(sweep: Sweep, trial: Trial) -> tuple[list[list], int]:
    """Return the steps of the first objective that a running trial has reported since the last look, and the last row.

    Values that are not finite are texts, as in the row.
    """
    metric, job = sweep.objectives[0]["metric"], trial.job_id
    if metric in MEASURED:
        rows = Metrics.objects.filter(job=job, seq__gt=trial.seen, **{f"{metric}__isnull": False}).order_by("seq")
        rows = rows.values_list("seq", "epoch", metric)
    else:
        rows = Value.objects.filter(job=job, name=metric, id__gt=trial.seen).order_by("id")
        rows = rows.values_list("id", "step", "value")
    reported = list(rows[:AT_ONCE])
    steps = [[step, value if math.isfinite(value) else str(value)] for _key, step, value in reported]
    return steps, reported[-1][0] if reported else trial.seen


def thinned(steps: Iterable[list], every: int) -> list[list]:
    """Return those of the steps that the pruner sees, the last report of each."""
    return [[step, value] for step, value in {s: v for s, v in steps if s % every == 0}.items()]


def last_value(trial: Trial) -> list | None:
    """Return what a trial that is ended early had reached."""
    numbers = [value for _step, value in trial.steps if not isinstance(value, str)]
    return [numbers[-1]] if numbers else None
