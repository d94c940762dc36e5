"""The REST paths of sweeps, pipelines and schedules, below /api/v1."""

from __future__ import annotations

from django.urls import path

from .pipelines import api as pipelines
from .schedules import api as schedules
from .sweeps import api as sweeps

PIPELINE = "users/<seg:user>/pipelines/<seg:name>"
RUN = f"{PIPELINE}/runs/<int:number>"
SCHEDULE = "users/<seg:user>/schedules/<seg:name>"
SWEEP = "users/<seg:user>/sweeps/<seg:name>"

urlpatterns = [
    path("users/<seg:user>/pipelines", pipelines.PipelineList.as_view()),
    path(PIPELINE, pipelines.PipelineDetail.as_view()),
    path(f"{PIPELINE}:edit", pipelines.PipelineEdit.as_view()),
    path(f"{PIPELINE}/runs", pipelines.PipelineRuns.as_view()),
    path(RUN, pipelines.PipelineRunDetail.as_view()),
    path(f"{RUN}:cancel", pipelines.PipelineRunCancel.as_view()),
    path(f"{RUN}/steps/<seg:step>:approve", pipelines.StepApprove.as_view()),
    path(f"{RUN}/steps/<seg:step>:reject", pipelines.StepReject.as_view()),
    path("users/<seg:user>/schedules", schedules.ScheduleList.as_view()),
    path("users/<seg:user>/schedules:preview", schedules.SchedulePreview.as_view()),
    path(SCHEDULE, schedules.ScheduleDetail.as_view()),
    path(f"{SCHEDULE}:edit", schedules.ScheduleEdit.as_view()),
    path(f"{SCHEDULE}:pause", schedules.SchedulePause.as_view()),
    path(f"{SCHEDULE}:resume", schedules.ScheduleResume.as_view()),
    path(f"{SCHEDULE}:run", schedules.ScheduleRun.as_view()),
    path(f"{SCHEDULE}/firings", schedules.ScheduleFirings.as_view()),
    path("users/<seg:user>/sweeps", sweeps.SweepList.as_view()),
    path(SWEEP, sweeps.SweepDetail.as_view()),
    path(f"{SWEEP}:edit", sweeps.SweepEdit.as_view()),
    path(f"{SWEEP}:pause", sweeps.SweepPause.as_view()),
    path(f"{SWEEP}:resume", sweeps.SweepResume.as_view()),
    path(f"{SWEEP}:extend", sweeps.SweepExtend.as_view()),
    path(f"{SWEEP}:cancel", sweeps.SweepCancel.as_view()),
    path(f"{SWEEP}/trials", sweeps.SweepTrials.as_view()),
]
