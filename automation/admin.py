"""Sweeps in the admin site."""

from __future__ import annotations

from .sweeps import admin  # noqa: F401 (registers them)
