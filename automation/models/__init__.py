"""The rows of sweeps, pipelines and schedules, a file for each."""

from .sweep import ENDED_TRIALS, LIVE_TRIALS, Sweep, SweepState, Trial, TrialState

__all__ = ["ENDED_TRIALS", "LIVE_TRIALS", "Sweep", "SweepState", "Trial", "TrialState"]
