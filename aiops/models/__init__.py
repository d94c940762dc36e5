"""The models of AIOps: trainings and versions (`runs`), saved searches and alert rules (`alerts`), log lines and
related rows (`logs`), how often templates come (`rates`), lines that belong together (`sessions`), what
people have marked as normal (`suppressions`).
"""

from __future__ import annotations

from .alerts import Alert, AlertRule, SavedSearch
from .logs import Feedback, FollowedFile, Level, LogKey, LogLine, LogMinute, Template, WatchedWorkload, Workload
from .rates import RateAnomaly, RateClock, TemplateRate
from .runs import ENDED, ModelVersion, State, TrainingRun
from .sessions import SessionAnomaly, SessionClock
from .suppressions import Suppression

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
    "RateAnomaly",
    "RateClock",
    "SavedSearch",
    "SessionAnomaly",
    "SessionClock",
    "State",
    "Suppression",
    "Template",
    "TemplateRate",
    "TrainingRun",
    "WatchedWorkload",
    "Workload",
]
