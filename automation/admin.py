"""Sweeps, pipelines and schedules in the admin site."""

from __future__ import annotations

from .pipelines import admin as pipelines  # noqa: F401 (registers them)
from .schedules import admin as schedules  # noqa: F401 (registers them)
from .sweeps import admin as sweeps  # noqa: F401 (registers them)
