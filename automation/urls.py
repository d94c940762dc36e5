"""The REST paths of sweeps, pipelines and schedules, below /api/v1."""

from __future__ import annotations

from django.urls import path

from .sweeps import api as sweeps

SWEEP = "users/<seg:user>/sweeps/<seg:name>"

urlpatterns = [
    path("users/<seg:user>/sweeps", sweeps.SweepList.as_view()),
    path(SWEEP, sweeps.SweepDetail.as_view()),
    path(f"{SWEEP}:pause", sweeps.SweepPause.as_view()),
    path(f"{SWEEP}:resume", sweeps.SweepResume.as_view()),
    path(f"{SWEEP}:extend", sweeps.SweepExtend.as_view()),
    path(f"{SWEEP}:cancel", sweeps.SweepCancel.as_view()),
    path(f"{SWEEP}/trials", sweeps.SweepTrials.as_view()),
]
