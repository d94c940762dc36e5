"""The rows of sweeps, pipelines and schedules, a file for each."""

from __future__ import annotations

from .pipeline import DONE_STEPS, LIVE_STEPS, Pipeline, PipelineRun, RunState, Step, StepState
from .schedule import Firing, FiringState, Schedule, ScheduleState
from .sweep import ENDED, ENDED_TRIALS, LIVE_TRIALS, OPEN, Sweep, SweepState, Trial, TrialState

__all__ = [
    "DONE_STEPS",
    "ENDED",
    "ENDED_TRIALS",
    "LIVE_STEPS",
    "LIVE_TRIALS",
    "OPEN",
    "Firing",
    "FiringState",
    "Pipeline",
    "PipelineRun",
    "RunState",
    "Schedule",
    "ScheduleState",
    "Step",
    "StepState",
    "Sweep",
    "SweepState",
    "Trial",
    "TrialState",
]  # fmt: skip
