"""The rows of sweeps, pipelines and schedules, a file for each."""

from __future__ import annotations

from .schedule import Firing, FiringState, Schedule, ScheduleState
from .sweep import ENDED, ENDED_TRIALS, LIVE_TRIALS, OPEN, Sweep, SweepState, Trial, TrialState

__all__ = [
    "ENDED",
    "ENDED_TRIALS",
    "LIVE_TRIALS",
    "OPEN",
    "Firing",
    "FiringState",
    "Schedule",
    "ScheduleState",
    "Sweep",
    "SweepState",
    "Trial",
    "TrialState",
]  # fmt: skip
