"""The rows of AIOps: trainings and model versions (`runs`), log lines and what belongs to them (`logs`)."""

from __future__ import annotations

from .logs import Feedback, FollowedFile, Level, LogLine, Template, Workload
from .runs import ENDED, ModelVersion, State, TrainingRun

__all__ = [
    "ENDED",
    "Feedback",
    "FollowedFile",
    "Level",
    "LogLine",
    "ModelVersion",
    "State",
    "Template",
    "TrainingRun",
    "Workload",
]
