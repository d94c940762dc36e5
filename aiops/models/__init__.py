"""The rows of AIOps: trainings and versions (`runs`), alert rules (`alerts`), log lines and their own (`logs`)."""

from __future__ import annotations

from .alerts import Alert, AlertRule
from .logs import Feedback, FollowedFile, Level, LogLine, Template, Workload
from .runs import ENDED, ModelVersion, State, TrainingRun

__all__ = [
    "ENDED",
    "Alert",
    "AlertRule",
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
