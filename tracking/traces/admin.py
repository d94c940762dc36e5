"""Traces for administrators: look, and delete. Imported by tracking.admin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from jobs.models import Trace
from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import badge, link, moment, short, url_of

from . import retention

TONES = {Trace.Status.IN_PROGRESS: "running", Trace.Status.OK: "ready", Trace.Status.ERROR: "error"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def delete(trace: Trace, *, by: str) -> None:
    retention.delete(Trace.objects.filter(pk=trace.pk), 1)


@admin.register(Trace)
class TraceAdmin(LifecycleAdmin):
    icon = "account_tree"
    list_display = ("key", "label", "user_link", "project_link", "status_badge", "spans_kept", "tokens", "started_at")
    list_filter = ("status",)
    search_fields = ("key", "name", "user__username", "project__name")
    search_help_text = _("Id, name, username or project")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user", "project__user")
    show_full_result_count = False  # there may be millions
    fieldsets = (
        (None, {"fields": (("key", "label"), ("user_link", "project_link"), ("status_badge", "started_at"))}),
        (_("Usage"), {"fields": (("spans_kept", "errors"), ("input_tokens", "output_tokens"), ("model", "cost"))}),
        (_("Messages"), {"fields": ("request", "response")}),
        (_("When"), {"fields": (("created", "updated"),)}),
    )
    verbs = {
        "delete": Verb(
            label=_("Delete"),
            run=delete,
            question=_("The trace is deleted with its spans and its feedback. This cannot be undone."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    @display(description=_("name"), ordering="name")
    def label(self, row: Trace) -> str:
        return short(row.name) or "-"

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Trace) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("project"), ordering="project__name")
    def project_link(self, row: Trace) -> str:
        return link(url_of(row.project), row.project.name)

    @display(description=_("status"), ordering="status")
    def status_badge(self, row: Trace) -> str:
        return badge(TONES.get(row.status, "plain"), row.get_status_display())

    @display(description=_("tokens"))
    def tokens(self, row: Trace) -> str:
        return "-" if row.tokens is None else str(row.tokens)

    @display(description=_("started"), ordering="started_ns")
    def started_at(self, row: Trace) -> str:
        try:
            return moment(EPOCH + timedelta(microseconds=row.started_ns // 1000))
        except OverflowError:  # the clock of the program that sent it may be anything
            return "-"
