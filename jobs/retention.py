"""Removes logs, metrics and outputs of ended jobs when their tenants say so. Called by reconcile in each round.

What is removed goes first, then the job's row says so. A process that is killed in between does it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from kernel import after_commit, clock, healing, storage, trash
from kernel.locking import Missing, locked
from resources.models import Tenant

from . import environment, tracker
from .artifacts import space
from .models import ENDED, ArtifactSpace, Job, Metrics, State, Value

LIVE = (State.CREATING, State.RUNNING)
ROUND_S = 1.0  # of one round of reconcile
MAX = 100  # jobs of one tenant
ROWS = 10_000  # of one transaction
USAGE = "usage.jsonl"  # beside the log


def run(now: datetime) -> None:
    """Remove what is due, as much as ROUND_S allow."""
    end, settled = time.monotonic() + ROUND_S, clock.settled(now)
    for part, remove in REMOVED.items():
        tenants = Tenant.objects.exclude(**{f"{part}_days": None}).order_by("pk")
        for pk, days in tenants.values_list("pk", f"{part}_days"):
            before = {"tenant": pk, "ended__lt": settled - timedelta(days=days), f"{part}_removed": None}
            due = Job.objects.filter(**before, state__in=ENDED, run_name="").select_related("user")
            for job in due.order_by("ended")[:MAX]:
                healing.attempt(_remove, job, part, remove, now)
                if time.monotonic() > end:
                    return


def _remove(job: Job, part: str, remove: Callable[[Job], None], now: datetime) -> None:
    if part == "output" and _is_read(job):
        return
    remove(job)
    same = Job.objects.filter(pk=job.pk, state=job.state, ended=job.ended)  # not one that runs again since
    same.update(**{f"{part}_removed": now, "output_measured": None})
    after_commit.changed(job.user.username, "job", job.name)


def _is_read(job: Job) -> bool:
    """Return whether a queued or running job reads the output."""
    live = Job.objects.filter(user=job.user_id, state__in=LIVE).exclude(job_inputs={})
    sources = (source for inputs in live.values_list("job_inputs", flat=True) for source in inputs.values())
    return any(source.partition("/")[0] == job.name for source in sources)


def _remove_log(job: Job) -> None:
    storage.clear(storage.job_dir(job.user.username, job.name) / "log", keep={USAGE})
    for worker in range(job.workers):
        environment.log_file(job, worker).forget()
    trash.forget_log("jobs", job.user.username, job.name)


def _remove_metrics(job: Job) -> None:
    """Delete all points; the summary of each metric, which tables of runs show, stays."""
    folder = storage.job_dir(job.user.username, job.name)
    storage.clear(folder / "log", only={USAGE})
    storage.clear(folder / "metrics")
    left = True
    while left:
        left = False
        with suppress(Missing), locked(Job, pk=job.pk) as row:
            if row.state not in ENDED or row.ended != job.ended:
                return
            for model in (Value, Metrics):
                keys = list(model.objects.filter(job=row).order_by("pk").values_list("pk", flat=True)[:ROWS])
                model.objects.filter(pk__in=keys).delete()
                left = left or len(keys) == ROWS
            if not left:
                tracker.get().forget_points(row.pk)
                row.values_kept = 0
                row.save(update_fields=["values_kept"])


def _remove_output(job: Job) -> None:
    storage.clear(storage.job_dir(job.user.username, job.name), keep={"log", "metrics"})
    if ArtifactSpace.objects.filter(pk=job.pk, stored__gt=0).exists():
        with suppress(Missing), space.writing(job) as writing:
            writing.charge(-writing.row.stored)


REMOVED: dict[str, Callable[[Job], None]] = {
    "log": _remove_log,
    "metrics": _remove_metrics,
    "output": _remove_output,
}
