"""Registers the app with Django, and with the jobs whose reports it keeps. Its tables are those of jobs."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class TrackingConfig(AppConfig):
    name = "tracking"

    def ready(self) -> None:
        import_module("jobs.tracker").register(import_module("tracking.reports").Reports())  # models are ready only now
