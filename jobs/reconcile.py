"""Reconciles jobs: polls every run, and repeats what a lost message should have done.

Called by `manage.py reconcile` each round, and at its start; `look_at` when a run ends between two rounds. It repeats
the wake of every running or recently ended job, so a page that missed one is a few seconds behind at most. A job that
fails here does not affect the others.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.utils import timezone

from kernel import after_commit, healing

from . import idle, launching, lifecycle, preemption, retention, sizes, trash
from .artifacts import multipart
from .code import sweeping
from .doctor import diagnose
from .models import ENDED, Job, Origin, State
from .packages import building
from .packages.named import installing
from .queue import waiting

AGAIN_AFTER = timedelta(seconds=10)
DIAGNOSED_AT_ONCE = 20  # an upgraded platform may have thousands of old failures
RECENTLY = timedelta(seconds=15)


def run() -> None:
    """Run one round over all jobs."""
    now = timezone.now()
    healing.attempt(lifecycle.reserve_next)
    healing.attempt(preemption.run, now)
    for pk in _not_started(now):
        after_commit.enqueue("jobs.launch", pk, queue="launches")
    healing.each(_look, Job.objects.select_related("user").filter(_live()))
    healing.attempt(launching.sweep)
    healing.attempt(building.sweep)
    healing.attempt(installing.resume)
    healing.each(diagnose.diagnose, diagnose.undiagnosed(DIAGNOSED_AT_ONCE))
    healing.attempt(idle.apply, now)
    healing.attempt(waiting.announce)
    healing.attempt(lifecycle.adopt)
    healing.attempt(trash.purge)
    healing.attempt(sizes.apply_limits, now)
    healing.attempt(sizes.measure, now)
    healing.attempt(retention.run, now)
    healing.attempt(building.evict)
    ended = Job.objects.filter(state__in=ENDED)
    unclean = ended.filter(~Q(run_name="") | Q(reserved=True)).exclude(ended__range=_just(now))
    for pk in unclean.values_list("pk", flat=True):
        after_commit.enqueue("jobs.clean", pk, False)
    reported = Job.objects.filter(state=State.RUNNING, origin=Origin.CLIENT, heard__gt=now - RECENTLY)
    for pk in reported.values_list("pk", flat=True):
        after_commit.wake("job", pk)
    for pk in ended.filter(ended__gt=now - RECENTLY).values_list("pk", flat=True):
        after_commit.wake("job", pk)
    for pk in Job.objects.filter(state=State.DELETING).values_list("pk", flat=True)[:200]:
        after_commit.enqueue("jobs.erase", pk, False, queue="files")
    healing.attempt(sweeping.sweep)
    healing.attempt(multipart.sweep)


def look_at(run_names: list[str]) -> None:
    """Poll the jobs whose runs have just ended, in place of the next round."""
    healing.each(_look, Job.objects.select_related("user").filter(_live(), run_name__in=run_names))


def pending() -> list[QuerySet]:
    """Return what a round is needed for: jobs that have not ended, and those that hold a run or resources, whatever
    their state, since a message about their end may be lost.
    """
    states = Job.objects.filter(state__in=[State.CREATING, State.RUNNING, State.DELETING])
    return [states, Job.objects.filter(~Q(run_name="")), Job.objects.filter(reserved=True)]


def _look(job: Job) -> None:
    after_commit.wake("job", job.pk)
    if job.stepping_back:
        launching.step_back(job.pk, follow=False)
        return
    launching.poll(job)
    if job.is_overdue:
        lifecycle.stop_overdue(job.pk)


def _live() -> Q:
    return ~Q(run_name="") & Q(state__in=[State.CREATING, State.RUNNING])


def _not_started(now: datetime):
    waiting = Job.objects.filter(state=State.CREATING, reserved=True, run_name="").exclude(created__range=_just(now))
    return waiting.values_list("pk", flat=True)[:200]


def _just(now: datetime) -> tuple[datetime, datetime]:
    """Return the range of times that have just been. Later ones are those of a clock that was set back since."""
    return now - AGAIN_AFTER, now
