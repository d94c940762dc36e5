"""Versions of named environments in the admin site: list, try again, delete."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from jobs.models import EnvironmentVersion
from jobs.packages.store import Environment
from kernel import units
from kernel.admin import LifecycleAdmin, OwnedAdmin, Verb

from . import lifecycle


def retry(version: EnvironmentVersion, *, by: str) -> None:
    lifecycle.retry_version(user=version.environment.user, pk=version.pk, by=by)


def delete(version: EnvironmentVersion, *, by: str) -> None:
    lifecycle.delete_version(user=version.environment.user, pk=version.pk, by=by)


@admin.register(EnvironmentVersion)
class EnvironmentVersionAdmin(OwnedAdmin):
    icon = "package_2"
    list_display = ("reference", "tenant_name", "user_link", "state_badge", "size_text", "why", "created_at")
    list_filter = ("state", "environment__tenant")
    search_fields = ("environment__name", "user__username", "requirements", "reason")
    search_help_text = _("Name, username, package or reason")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user", "environment__tenant", "environment__user")
    fieldsets = (
        (None, {"fields": (("reference", "user_link"), ("state_badge", "tenant_name"), "reason_text")}),
        (_("Packages"), {"fields": ("asked", "installed", ("size_text", "runtime"), ("created", "used"))}),
    )
    verbs = {
        "retry": Verb(label=_("Try again"), run=retry, transition="retry", icon="refresh"),
        "delete": Verb(
            label=_("Delete"),
            run=delete,
            transition="erase",
            check=lifecycle.require_unused,
            question=_("Its files are deleted, and its number is not used again."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request):
        return LifecycleAdmin.get_queryset(self, request).select_related(*self.list_select_related)

    @display(description=_("name"), ordering="environment__name")
    def reference(self, version: EnvironmentVersion) -> str:
        return version.reference

    @display(description=_("tenant"), ordering="environment__tenant")
    def tenant_name(self, version: EnvironmentVersion) -> str:
        return version.tenant.name

    @display(description=_("size"))
    def size_text(self, version: EnvironmentVersion) -> str:
        return units.size(Environment(version.user_id, version.packages).size_mib() << 20)

    @display(description=_("packages"))
    def asked(self, version: EnvironmentVersion) -> str:
        return version.shown_requirements

    @display(description=_("installed packages"))
    def installed(self, version: EnvironmentVersion) -> str:
        return version.shown_pins or "-"
