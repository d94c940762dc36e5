"""Registers the app with Django, and connects it to the de-registration signal."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class JobsConfig(AppConfig):
    name = "jobs"
    verbose_name = _("Jobs")

    def ready(self) -> None:
        # models may be imported only now
        deregistered = import_module("accounts.lifecycle").deregistered
        cancel_all_of = import_module("jobs.lifecycle").cancel_all_of

        def end_jobs(sender, user, by, **_):
            cancel_all_of(user, by)

        deregistered.connect(end_jobs, weak=False, dispatch_uid="jobs.end_jobs")
