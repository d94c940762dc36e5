"""The addresses of the pages of sweeps, pipelines and schedules. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from kernel.page_urls import shared

from .pipelines import pages as pipelines
from .schedules import pages as schedules
from .sweeps import pages as sweeps

urlpatterns = [
    path("sweeps", sweeps.sweeps, name="sweeps"),
    *shared("sweeps/<seg:name>", sweeps.sweep, name="sweep"),
    path("sweeps/<seg:name>/title", sweeps.title, name="sweep_title"),
    path("sweeps/<seg:name>/change", sweeps.change, name="sweep_change"),
    path("pipelines", pipelines.pipelines, name="pipelines"),
    path("pipelines/<seg:name>", pipelines.pipeline, name="pipeline"),
    path("pipelines/<seg:name>/title", pipelines.title, name="pipeline_title"),
    path("pipelines/<seg:name>/change", pipelines.change, name="pipeline_change"),
    path("pipelines/<seg:name>/runs/<seg:number>", pipelines.run, name="pipelinerun"),
    path("pipelines/<seg:name>/runs/<seg:number>/change", pipelines.change_run, name="pipeline_run_change"),
    path("schedules", schedules.schedules, name="schedules"),
    path("schedules/<seg:name>", schedules.schedule, name="schedule"),
    path("schedules/<seg:name>/title", schedules.title, name="schedule_title"),
    path("schedules/<seg:name>/change", schedules.change, name="schedule_change"),
]
