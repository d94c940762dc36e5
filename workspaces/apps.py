"""The Django app, which acts on the deregistration of users, and on the ends of sessions, tokens and memberships."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.db.models.signals import post_delete, post_save
from django.utils.translation import gettext_lazy as _


class WorkspacesConfig(AppConfig):
    name = "workspaces"
    verbose_name = _("Workspaces")

    def ready(self) -> None:
        # models can be imported only here
        lifecycle, guests = import_module("workspaces.lifecycle"), import_module("workspaces.guests")

        def end_workspaces(sender, user, by, **_):
            lifecycle.delete_all_of(user, by)
            guests.end_all(user.pk, by)

        deregistered = import_module("accounts.lifecycle").deregistered
        deregistered.connect(end_workspaces, weak=False, dispatch_uid="workspaces.end_workspaces")
        import_module("jobs.artifacts.outputs").register(import_module("workspaces.sizes").usage_of)
        import_module("resources.admission_hooks").register(lifecycle.admit)
        import_module("resources.products").register(lifecycle.held_gpus)

        def close_links_of_sessions(sender, user, **_):
            guests.close_links(pk=user.pk)

        def close_links_of_tokens(sender, pks, **_):
            guests.close_links(tokens__in=pks)

        accounts = import_module("accounts.models")

        def end_invitations(sender, instance, **_):
            guests.end_all(instance.user_id, "platform", instance.tenant_id)

        def end_invitations_of_viewers(sender, instance, **_):
            if instance.role not in accounts.SUBMITTING:
                end_invitations(sender, instance)

        which = {"sender": accounts.Membership, "weak": False}
        post_delete.connect(end_invitations, dispatch_uid="workspaces.invitations", **which)
        post_save.connect(end_invitations_of_viewers, dispatch_uid="workspaces.invitations_of_viewers", **which)

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
