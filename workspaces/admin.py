"""Workspaces in the admin site: list, end of the log, stop, start, trash, delete. An administrator cannot open one."""

from __future__ import annotations

from django.contrib import admin
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from jobs import logs
from kernel import units
from kernel.admin import OwnedAdmin, Verb
from kernel.admin_display import link, object_url
from kernel.admin_trash import TrashFilter, trash_verbs

from . import lifecycle, trash
from .api import read_log
from .launching import log_file
from .models import Workspace

LOG_SHOWN = 16 << 10  # bytes


def stop(workspace: Workspace, *, by: str) -> None:
    lifecycle.stop_workspace(user=workspace.user, name=workspace.name, by=by)


def start(workspace: Workspace, *, by: str) -> None:
    lifecycle.start_workspace(user=workspace.user, name=workspace.name, by=by)


def delete(workspace: Workspace, *, by: str) -> None:
    lifecycle.delete_workspace(user=workspace.user, name=workspace.name, by=by)


@admin.register(Workspace)
class WorkspaceAdmin(OwnedAdmin):
    icon = "terminal"
    list_display = ("name", "title", "user_link", "state_badge", "asked", "busy", "active", "why", "created_at")
    list_filter = ("state", TrashFilter, "tenant")
    search_fields = ("name", "title", "user__username", "reason")
    search_help_text = _("Name, title, username or reason")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user", "tenant")
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("state_badge", "environment"), "reason_text")}),
        (_("Resources"), {"fields": (("asked", "gpu_type", "reserved"), ("tenant_link", "request_link"), "size_text")}),
        (_("Run"), {"fields": (("attempt", "run_name"), ("ordered", "address"), ("active", "busy"))}),
        (_("When"), {"fields": (("created", "ready_since"), ("idle_minutes", "hours"), ("stops", "trashed"))}),
        (_("Guests"), {"fields": ("guests_text",)}),
        (_("End of the log"), {"fields": ("log_end",)}),
    )
    verbs = {
        "stop": Verb(
            label=_("Stop"),
            run=stop,
            transition="stop",
            question=_("Its kernels and terminals end. Its resources are freed; its files are kept."),
            icon="stop_circle",
        ),
        "start": Verb(
            label=_("Start"),
            run=start,
            transition="start",
            when=lambda workspace: workspace.trashed is None,
            check=lifecycle.require_startable,
            icon="play_circle",
        ),
        **trash_verbs(trash.trash, trash.restore),
        "delete": Verb(
            label=_("Delete"),
            run=delete,
            transition="erase",
            question=_("Its files are deleted."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    @display(description=_("requested"))
    def asked(self, row: Workspace) -> str:
        return gettext("%(cpu)g CPU · %(gpu)s GPU · %(ram)s MiB") % {"cpu": row.cpu, "gpu": row.gpu, "ram": row.ram}

    @display(description=_("size"), ordering="size")
    def size_text(self, row: Workspace) -> str:
        return units.size(row.size) or "–"

    @display(description=_("resource request"))
    def request_link(self, row: Workspace) -> str:
        pk = lifecycle.request_id(row.pk)
        return link(object_url("resourcerequest", pk), pk)

    @display(description=_("guests"))
    def guests_text(self, row: Workspace) -> str:
        guests = row.guests.order_by("user__username").values_list("user__username", "accepted")
        shown = [name if accepted else gettext("%(user)s (invited)") % {"user": name} for name, accepted in guests]
        return ", ".join(shown) or "–"

    @display(description=_("log"))
    def log_end(self, row: Workspace) -> SafeString:
        file = log_file(row).open()
        size = 0
        if file is not None:
            with file:
                size = file.seek(0, 2)
        text = logs.ending(lambda at, most: read_log(row, at, most), size, LOG_SHOWN)[0]
        return render_to_string("admin/jobs/log.html", {"text": text})
