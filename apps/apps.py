"""The Django app, which acts on the deregistration of users."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ApplicationsConfig(AppConfig):
    name = "apps"
    verbose_name = _("Applications")

    def ready(self) -> None:
        # models can be imported only here
        deregistered = import_module("accounts.lifecycle").deregistered
        delete_all_of = import_module("apps.lifecycle").delete_all_of

        def end_apps(sender, user, by, **_):
            delete_all_of(user, by)

        import_module("kernel.inner_http").beside["route"] = "apps.routing.start"
        deregistered.connect(end_apps, weak=False, dispatch_uid="apps.end_apps")
        import_module("resources.admission_hooks").register(import_module("apps.queueing").admit)
        packages = import_module("apps.packages")
        import_module("jobs.packages.using").register(packages.in_use)
        import_module("jobs.packages.named.used").register(packages.named_uses)
        import_module("resources.products").register(import_module("apps.second_runs").held_gpus)
        import_module("apps.records.datasets").register()
        import_module("apps.batch.scoring").register()
        model, work = self.get_model("Application"), import_module("resources.work")
        import_module("accounts.sharing.kinds").register(model, page="application")

        def live(tenant):
            return model.objects.filter(tenant=tenant, state__in=["creating", "ready"])

        work.register(work.Kind("application", live, import_module("apps.lifecycle").stop_app, "application"))
