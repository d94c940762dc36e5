"""Registers the app with Django, and connects it to what happens to jobs and users."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _
from django_fsm.signals import post_transition


class AutomationConfig(AppConfig):
    name = "automation"
    verbose_name = _("Automation")

    def ready(self) -> None:
        # models may be imported only now
        job = import_module("jobs.models").Job
        sweeps = import_module("automation.sweeps.lifecycle")
        schedules = import_module("automation.schedules.lifecycle")
        pipelines = import_module("automation.pipelines.lifecycle")
        deregistered = import_module("accounts.lifecycle").deregistered

        def moved(sender, instance, **_others):
            sweeps.job_moved(instance)
            pipelines.job_moved(instance)

        def end_all(sender, user, by, **_others):
            schedules.pause_all_of(user, by)
            sweeps.cancel_all_of(user, by)
            pipelines.cancel_all_of(user, by)

        post_transition.connect(moved, sender=job, weak=False, dispatch_uid="automation.job_moved")
        deregistered.connect(end_all, weak=False, dispatch_uid="automation.end_all")
        for is_told_otherwise in (sweeps.is_of_trial, pipelines.is_of_step):
            import_module("accounts.notices").silence(is_told_otherwise)
        import_module("accounts.sharing.kinds").register(self.get_model("Sweep"), page="sweep")
        uses, of_automation = import_module("datasets.uses"), import_module("automation.uses")
        uses.register(of_automation.of_datasets)
        uses.register_lister(of_automation.newest)
        import_module("jobs.packages.named.used").register(of_automation.of_environment)
        import_module("datasets.home").register(import_module("automation.home").running)
        for kind in import_module("automation.work").kinds():
            import_module("resources.work").register(kind)
