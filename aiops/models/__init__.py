"""The rows of AIOps: trainings and model versions (`runs`). Written only through aiops.lifecycle."""

from __future__ import annotations

from .runs import ENDED, ModelVersion, State, TrainingRun

__all__ = ["ENDED", "ModelVersion", "State", "TrainingRun"]
