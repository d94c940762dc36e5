"""The sweeps, schedules and runs of pipelines that are under way in a tenant, for its administrators (resources.work).

Their jobs are in the tenant that the job's spec names; without one in the user's default tenant.
"""

from __future__ import annotations

from django.db.models import Q, QuerySet

from kernel.locking import Missing
from resources.models import Tenant
from resources.work import Kind

from .models import PipelineRun, RunState, Schedule, ScheduleState, Sweep, SweepState
from .pipelines import lifecycle as pipelines
from .schedules import lifecycle as schedules
from .sweeps import lifecycle as sweeps


def _in(tenant: Tenant, *places: str) -> Q:
    """Return the condition of rows whose spec names the tenant at one of these places, or none at any."""
    named, unnamed = Q(), Q(user__tenant=tenant)
    for place in places:
        named |= Q(**{place: tenant.name})
        unnamed &= Q(**{f"{place}__isnull": True})
    return named | unnamed


def _sweeps(tenant: Tenant) -> QuerySet:
    return Sweep.objects.filter(_in(tenant, "job__tenant"), state__in=[SweepState.RUNNING, SweepState.PAUSED])


def _schedules(tenant: Tenant) -> QuerySet:
    return Schedule.objects.filter(_in(tenant, "spec__tenant", "spec__job__tenant"), state=ScheduleState.ACTIVE)


def _runs(tenant: Tenant) -> QuerySet:
    there = Q(steps__job__tenant=tenant) | Q(user__tenant=tenant)
    return PipelineRun.objects.filter(there, state=RunState.RUNNING).select_related("pipeline").distinct()


def _cancel_run(*, user, name: str, by: str) -> None:
    pipeline, _slash, number = name.partition("/")
    run = PipelineRun.objects.filter(user=user, pipeline__name=pipeline, number=int(number)).first()
    if run is None:
        raise Missing("pipelinerun")
    pipelines.cancel_run(run, by=by)


def kinds() -> tuple[Kind, ...]:
    """Return the kinds of work of this app."""
    return (
        Kind("sweep", _sweeps, sweeps.cancel, "sweep"),
        Kind("schedule", _schedules, schedules.pause, "schedule"),
        Kind("pipelinerun", _runs, _cancel_run, "pipelinerun"),
    )
