"""Pipelines, their runs and steps for administrators: list, cancel, delete. Imported by automation.admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from automation.models import Pipeline, PipelineRun, Step
from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import link, list_address, moment, short, url_of
from kernel.messages import translate

from . import lifecycle


@admin.register(Pipeline)
class PipelineAdmin(LifecycleAdmin):
    icon = "account_tree"
    list_display = ("name", "title", "user_link", "count", "runs_link", "changed_at")
    search_fields = ("name", "title", "user__username")
    search_help_text = _("Pipeline, title or username")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user",)
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("count", "runs_link"), ("created", "changed_at"))}),
        (_("Definition"), {"fields": ("params", "notes")}),
    )
    verbs = {
        "delete": Verb(
            label=_("Delete"),
            run=lambda row, by: lifecycle.delete_pipeline(user=row.user, name=row.name, by=by),
            question=_("Its runs are cancelled and deleted with it. Their jobs stay in the table of jobs."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request):
        return super().get_queryset(request).annotate(run_count=Count("runs"))

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Pipeline) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("steps"))
    def count(self, row: Pipeline) -> int:
        return len(row.steps)

    @display(description=_("runs"), ordering="run_count")
    def runs_link(self, row: Pipeline) -> SafeString:
        return link(list_address("automation_pipelinerun", pipeline__id__exact=row.pk), row.run_count)

    @display(description=_("changed"), ordering="updated")
    def changed_at(self, row: Pipeline) -> str:
        return moment(row.updated)


@admin.register(PipelineRun)
class PipelineRunAdmin(LifecycleAdmin):
    icon = "conversion_path"
    list_display = ("number", "pipeline_link", "state_badge", "steps_link", "why", "created_at")
    list_filter = ("state",)
    search_fields = ("pipeline__name", "user__username", "reason")
    search_help_text = _("Pipeline, username or reason")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("pipeline__user", "user")
    fieldsets = (
        (None, {"fields": (("number", "pipeline_link"), ("state_badge", "steps_link"), ("created", "ended"), "why")}),
        (_("Parameters"), {"fields": ("params",)}),
    )
    verbs = {
        "cancel": Verb(
            label=_("Cancel"), run=lambda row, by: lifecycle.cancel_run(row, by=by), transition="fail",
            icon="stop_circle", tone="danger", question=_("The jobs of its steps are cancelled."),
        ),
        "delete": Verb(
            label=_("Delete"), run=lambda row, by: lifecycle.delete_run(row, by=by), transition="erase", icon="delete",
            question=_("What runs is cancelled. Its jobs stay in the table of jobs."), tone="danger",
            permission="delete",
        ),
    }  # fmt: skip

    def get_queryset(self, request):
        return (
            super().get_queryset(request).select_related("pipeline__user", "user").annotate(step_count=Count("steps"))
        )

    @display(description=_("pipeline"), ordering="pipeline__name")
    def pipeline_link(self, row: PipelineRun) -> str:
        return link(url_of(row.pipeline), row.pipeline)

    @display(description=_("steps"), ordering="step_count")
    def steps_link(self, row: PipelineRun) -> SafeString:
        return link(list_address("automation_step", run__id__exact=row.pk), row.step_count)

    @display(description=_("reason"))
    def why(self, row: PipelineRun) -> str:
        return short(translate(row.reason)) or "-"

    @display(description=_("created"), ordering="created")
    def created_at(self, row: PipelineRun) -> str:
        return moment(row.created)


@admin.register(Step)
class StepAdmin(LifecycleAdmin):
    icon = "deployed_code_history"
    list_display = ("name", "run_link", "state_badge", "job_link", "why")
    list_filter = ("state",)
    search_fields = ("name", "run__pipeline__name", "run__user__username", "job__name")
    search_help_text = _("Pipeline, username or reason")
    ordering = ("-id",)
    list_select_related = ("run__pipeline__user", "job__user")
    fieldsets = (
        (None, {"fields": (("name", "run_link"), ("state_badge", "job_link"), ("started", "ended"), "by", "why")}),
    )

    @display(description=_("run"))
    def run_link(self, row: Step) -> str:
        return link(url_of(row.run), row.run)

    @display(description=_("job"))
    def job_link(self, row: Step) -> str:
        return link(url_of(row.job), row.job) if row.job else "-"

    @display(description=_("reason"))
    def why(self, row: Step) -> str:
        return short(translate(row.reason)) or "-"
