"""The models of AIOps: trainings and versions (`runs`), alert rules (`alerts`), log lines and related rows (`logs`)."""

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
