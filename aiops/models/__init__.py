"""The models of AIOps: trainings and versions (`runs`), saved searches and alert rules (`alerts`), log lines and
related rows (`logs`).
"""

from __future__ import annotations

from .alerts import Alert, AlertRule, SavedSearch
from .logs import Feedback, FollowedFile, Level, LogKey, LogLine, LogMinute, Template, WatchedWorkload, Workload
from .runs import ENDED, ModelVersion, State, TrainingRun

__all__ = [
    "ENDED",
    "Alert",
    "AlertRule",
    "Feedback",
    "FollowedFile",
    "Level",
    "LogKey",
    "LogLine",
    "LogMinute",
    "ModelVersion",
    "SavedSearch",
    "State",
    "Template",
    "TrainingRun",
    "WatchedWorkload",
    "Workload",
]
