"""The tables of applications."""

from __future__ import annotations

from .application import PORTS, Application, State
from .keys import AppKey, AppKeyUse
from .runs import AppRun, Replica, Rollout

__all__ = ["PORTS", "AppKey", "AppKeyUse", "AppRun", "Application", "Replica", "Rollout", "State"]
