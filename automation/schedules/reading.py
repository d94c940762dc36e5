"""Schedules as REST and pages show them: with their next times, and what they submit."""

from __future__ import annotations

from django.utils import timezone

from automation.models import Schedule, ScheduleState

from . import lifecycle, times

SHOWN = 5


def filled(schedule: Schedule) -> Schedule:
    """Return the schedule with all that ScheduleOut shows."""
    body = lifecycle.body_of(schedule)
    schedule.shown_job = body if schedule.kind == "job" else None
    schedule.shown_sweep = body if schedule.kind == "sweep" else None
    schedule.shown_pipeline = body if schedule.kind == "pipeline" else None
    schedule.shown_code = "kept" if schedule.snapshot_id else "latest"
    active = schedule.cron and schedule.state == ScheduleState.ACTIVE
    now = timezone.now()
    schedule.next_times = times.next_times(schedule.cron, schedule.time_zone, now, SHOWN) if active else []
    return schedule
