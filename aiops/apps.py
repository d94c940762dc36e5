"""The AIOps app."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AiopsConfig(AppConfig):
    name = "aiops"
    verbose_name = _("AIOps")

    def ready(self) -> None:
        # models may be imported only now
        forget_log = import_module("aiops.intake.forgetting").forget_log
        import_module("kernel.trash").keeps_logs(forget_log)
        import_module("kernel.inner_http").beside["logs"] = "aiops.web.log_listener.start"
        import_module("aiops.training.erasing").listen()
        import_module("resources.admission_hooks").register(import_module("aiops.lifecycle").admit)
