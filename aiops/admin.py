"""AIOps for operators: trainings, model versions, log lines, templates, feedback, searches, alerts.

Read-only, except for the version that serves; what is watched is chosen on the pages.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import badge, bar, measured, moment, short
from kernel.messages import translate

from .models import (
    Alert,
    AlertRule,
    Feedback,
    LogLine,
    ModelVersion,
    SavedSearch,
    Template,
    TrainingRun,
    WatchedWorkload,
)
from .training import versions

TONES = {"Normal": "finished", "Anomaly": "error"}


@admin.register(TrainingRun)
class TrainingRunAdmin(LifecycleAdmin):
    icon = "school"
    list_display = ("uuid", "state_badge", "progress_bar", "lines", "took", "by", "created_at", "why")
    list_filter = ("state",)
    search_fields = ("uuid", "by", "reason")
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": (("uuid", "state_badge"), ("progress_bar", "stage"), "reason_text", "workloads")}),
        (_("Run"), {"fields": (("attempt", "run_name"), ("gpu", "reserved"), ("owner", "lease_until", "heartbeat"))}),
        (
            _("Learning"),
            {"fields": (("lines", "epoch", "epochs"), ("loss_text", "elapsed", "eta"), ("created", "ended"))},
        ),
    )

    @display(description=_("loss"))
    def loss_text(self, run: TrainingRun) -> str:
        return measured(run.loss)

    @display(description=_("progress"), ordering="percent")
    def progress_bar(self, run: TrainingRun) -> str:
        return bar(run.percent, 100, f"{run.percent} %", plain=True)

    @display(description=_("elapsed (s)"), ordering="elapsed")
    def took(self, run: TrainingRun) -> int:
        return run.elapsed

    @display(description=_("reason"))
    def why(self, run: TrainingRun) -> str:
        return short(translate(run.reason))


@admin.register(ModelVersion)
class ModelVersionAdmin(LifecycleAdmin):
    icon = "deployed_code_history"
    list_display = ("version", "serving", "created_at", "served", "run")
    list_filter = ("serving",)
    search_fields = ("version",)
    ordering = ("-id",)
    list_select_related = ("run",)
    fieldsets = ((None, {"fields": (("version", "serving"), ("created", "served"), "run", "manifest")}),)
    verbs = {
        "serve": Verb(
            label=_("Activate"),
            run=lambda version, by: versions.serve(version.version, by),
            when=lambda version: not version.serving,
            question=_("This version scores all watched workloads from now on."),
            icon="rocket_launch",
            on_lists=False,
        )
    }


class _Looked(LifecycleAdmin):
    """A read-only table without verbs."""

    @display(description=_("verdict"), ordering="level")
    def verdict(self, row) -> str:
        return badge(TONES.get(row.level, "creating"), row.get_level_display())


@admin.register(LogLine)
class LogLineAdmin(_Looked):
    icon = "receipt_long"
    list_display = ("when", "namespace", "deployment", "verdict", "text")
    list_filter = ("level", "cluster", "log_type", "model")
    search_fields = ("line_id", "deployment", "namespace")
    search_help_text = _("ID, workload or namespace. Search the text of lines on the AIOps page.")
    ordering = ("-time", "-id")
    show_full_result_count = False
    fieldsets = (
        (
            None,
            {"fields": ("line_id", "when", ("cluster", "namespace", "deployment"), ("service", "pod", "log_type"))},
        ),
        (_("Line"), {"fields": ("log", "masked", "template", "template_id")}),
        (_("Verdict"), {"fields": (("verdict", "confidence", "model"), "unexpected_words")}),
    )

    @display(description=_("time"), ordering="time")
    def when(self, row: LogLine) -> str:
        return moment(datetime.fromtimestamp(row.time / 1000, UTC))

    @display(description=_("unexpected words"))
    def unexpected_words(self, row: LogLine) -> str:
        return ", ".join(str(word) for _position, word, *_usual in row.unexpected or []) or "-"

    @display(description=_("line"))
    def text(self, row: LogLine) -> str:
        return short(row.log)


@admin.register(Template)
class TemplateAdmin(_Looked):
    icon = "view_list"
    list_display = ("template_id", "words", "example")
    search_fields = ("text", "sample")
    ordering = ("-last",)
    fieldsets = ((None, {"fields": ("template_id", "text", "sample", "log_type")}),)

    @display(description=_("template"))
    def words(self, row: Template) -> str:
        return short(row.text)

    @display(description=_("sample"))
    def example(self, row: Template) -> str:
        return short(row.sample)


@admin.register(Feedback)
class FeedbackAdmin(_Looked):
    icon = "thumbs_up_down"
    list_display = ("words", "verdict", "namespace", "by", "said")
    list_filter = ("level",)
    search_fields = ("masked", "sample")
    ordering = ("-at",)
    list_select_related = ("by",)
    fieldsets = ((None, {"fields": ("masked", "sample", ("verdict", "namespace"), ("by", "said"))}),)

    @display(description=_("masked line"))
    def words(self, row: Feedback) -> str:
        return short(row.masked)

    @display(description=_("when"), ordering="at")
    def said(self, row: Feedback) -> str:
        return moment(row.at)


@admin.register(WatchedWorkload)
class WatchedWorkloadAdmin(LifecycleAdmin):
    icon = "visibility"
    list_display = ("deployment", "namespace", "by", "at")
    search_fields = ("deployment", "namespace", "by__username")
    ordering = ("namespace", "deployment")
    list_select_related = ("by",)
    fieldsets = ((None, {"fields": (("deployment", "namespace"), ("by", "at"))}),)


@admin.register(SavedSearch)
class SavedSearchAdmin(LifecycleAdmin):
    icon = "saved_search"
    list_display = ("name", "owner", "words", "tenant", "created_at")
    search_fields = ("name", "owner__username")
    ordering = ("name", "id")
    list_select_related = ("owner", "tenant")
    fieldsets = ((None, {"fields": (("name", "owner", "tenant"), "filters", "created")}),)

    @display(description=_("filters"))
    def words(self, row: SavedSearch) -> str:
        return short(", ".join(f"{name}: {value}" for name, value in row.filters.items()))


@admin.register(AlertRule)
class AlertRuleAdmin(_Looked):
    icon = "notification_important"
    list_display = ("name", "kind", "namespace", "deployment", "enabled", "muted_until", "owner")
    list_filter = ("kind", "enabled")
    search_fields = ("name", "owner__username")
    ordering = ("name",)
    list_select_related = ("owner",)
    fieldsets = (
        (None, {"fields": (("name", "kind", "enabled"), ("cluster", "namespace", "deployment"), "search")}),
        (_("Condition"), {"fields": (("threshold", "window_s", "quiet_s"), ("percent", "direction"))}),
        (_("Notification"), {"fields": (("owner", "others"), ("muted_until", "last_fired"))}),
    )

    @display(description=_("other recipients"))
    def others(self, row: AlertRule) -> str:
        return ", ".join(sorted(recipient.username for recipient in row.recipients.all())) or "-"


@admin.register(Alert)
class AlertAdmin(_Looked):
    icon = "notifications_active"
    list_display = ("fired", "rule", "workload", "count")
    search_fields = ("workload", "words")
    ordering = ("-id",)
    list_select_related = ("rule",)
    fieldsets = ((None, {"fields": (("rule", "fired"), ("workload", "count"), "words_text")}),)

    @display(description=_("when"), ordering="at")
    def fired(self, row: Alert) -> str:
        return moment(row.at)

    @display(description=_("sample lines"))
    def sample_lines(self, row: Alert) -> str:
        return short("; ".join(str(sample.get("log", "")) for sample in row.samples))

    @display(description=_("what"))
    def words_text(self, row: Alert) -> str:
        return translate(row.words)
