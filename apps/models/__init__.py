"""The tables of applications."""

from __future__ import annotations

from .application import PORTS, Application, State
from .drift import DriftCheck, DriftWindow
from .keys import AppKey, AppKeyUse
from .records import Feedback, Record, Recording
from .runs import AppRun, Replica, Rollout
from .scoring import Scoring
from .shadows import Shadow, ShadowPair

__all__ = [
    "PORTS",
    "AppKey",
    "AppKeyUse",
    "AppRun",
    "Application",
    "DriftCheck",
    "DriftWindow",
    "Feedback",
    "Record",
    "Recording",
    "Replica",
    "Rollout",
    "Scoring",
    "Shadow",
    "ShadowPair",
    "State",
]
