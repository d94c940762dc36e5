"""The Django app, which acts on the deregistration of users."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class WorkspacesConfig(AppConfig):
    name = "workspaces"
    verbose_name = _("Workspaces")

    def ready(self) -> None:
        # models can be imported only here
        lifecycle = import_module("workspaces.lifecycle")

        def end_workspaces(sender, user, by, **_):
            lifecycle.delete_all_of(user, by)

        deregistered = import_module("accounts.lifecycle").deregistered
        deregistered.connect(end_workspaces, weak=False, dispatch_uid="workspaces.end_workspaces")
        import_module("resources.admission_hooks").register(lifecycle.admit)

        def close_links(**whose):
            ready = self.get_model("Workspace").objects.filter(state="ready", **whose)
            for owner in ready.values_list("user", flat=True).distinct():
                # later than the gateway remembers the login: else a page would connect again in between
                after_commit.enqueue("workspaces.close_ended", owner, delay_ms=int(2000 * gateway.PLACE_S))

        def close_links_of_sessions(sender, user, **_):
            close_links(user=user)

        def close_links_of_tokens(sender, pks, **_):
            close_links(user__tokens__in=pks)

        after_commit, gateway = import_module("kernel.after_commit"), import_module("workspaces.gateway")
        sessions, tokens = import_module("accounts.sessions"), import_module("accounts.tokens")
        sessions.ended.connect(close_links_of_sessions, weak=False, dispatch_uid="workspaces.links")
        tokens.changed.connect(close_links_of_tokens, weak=False, dispatch_uid="workspaces.links_of_tokens")
        packages = import_module("workspaces.packages")
        import_module("jobs.packages.using").register(packages.in_use)
        import_module("jobs.packages.named.used").register(packages.named_uses)
        import_module("jobs.code.sweeping").register(import_module("workspaces.place").trees_in_use)
        model, work = self.get_model("Workspace"), import_module("resources.work")

        def live(tenant):
            return model.objects.filter(tenant=tenant, state__in=["creating", "ready"])

        work.register(work.Kind("workspace", live, lifecycle.stop_workspace, "workspace"))
