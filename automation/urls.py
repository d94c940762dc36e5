"""The REST paths of sweeps, pipelines and schedules, below /api/v1."""

from __future__ import annotations

urlpatterns: list = []
