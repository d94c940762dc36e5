"""Sweeps and their trials for administrators: list, pause, resume, cancel, delete. Imported by automation.admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from automation.models import Sweep, Trial
from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import link, list_address, measured, moment, short, url_of
from kernel.messages import translate

from . import lifecycle, space


def _verb(function):
    """Return what runs a function of the lifecycle for a row."""
    return lambda sweep, by: function(user=sweep.user, name=sweep.name, by=by)


@admin.register(Sweep)
class SweepAdmin(LifecycleAdmin):
    icon = "tune"
    list_display = (
        "name", "title", "user_link", "state_badge", "trials_link", "metrics", "sampler_name", "why", "created_at",
    )  # fmt: skip
    list_filter = ("state",)
    search_fields = ("name", "title", "user__username", "reason")
    search_help_text = _("Name, title, username or reason")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user",)
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("state_badge", "trials_link"), ("created", "ended"), "why")}),
        (_("Search"), {"fields": ("metrics", "sampler_name", "parameters", "pruner", "stop")}),
        (_("Job"), {"fields": ("entry", "snapshot_link", "parallel")}),
    )
    verbs = {
        "pause": Verb(label=_("Pause"), run=_verb(lifecycle.pause), transition="pause", icon="pause_circle"),
        "resume": Verb(
            label=_("Resume"), run=_verb(lifecycle.resume), transition="resume", icon="play_circle",
            when=lambda sweep: sweep.state != "finished",
        ),
        "cancel": Verb(
            label=_("Cancel"), run=_verb(lifecycle.cancel), transition="fail", icon="stop_circle", tone="danger",
            question=_("Its running trials are cancelled. Finished trials stay."),
        ),
        "delete": Verb(
            label=_("Delete"), run=_verb(lifecycle.delete_sweep), transition="erase", icon="delete", tone="danger",
            question=_("Its running trials are cancelled. Its runs stay in the table of jobs."), permission="delete",
        ),
    }  # fmt: skip

    def get_queryset(self, request):
        return (
            super().get_queryset(request).select_related("user", "snapshot__user").annotate(trial_count=Count("trials"))
        )

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Sweep) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("trials"), ordering="trial_count")
    def trials_link(self, row: Sweep) -> SafeString:
        return link(
            list_address("automation_trial", sweep__id__exact=row.pk), f"{row.trial_count} / {row.trials_wanted}"
        )

    @display(description=_("objectives"))
    def metrics(self, row: Sweep) -> str:
        return ", ".join(f"{each['direction']} {each['metric']}" for each in row.objectives)

    @display(description=_("sampler"))
    def sampler_name(self, row: Sweep) -> str:
        return row.sampler["type"]

    @display(description=_("script"))
    def entry(self, row: Sweep) -> str:
        return row.job.get("entry", "")

    @display(description=_("code"))
    def snapshot_link(self, row: Sweep) -> str:
        return link(url_of(row.snapshot), row.snapshot)

    @display(description=_("reason"))
    def why(self, row: Sweep) -> str:
        return short(translate(row.reason)) or "-"

    @display(description=_("created"), ordering="created")
    def created_at(self, row: Sweep) -> str:
        return moment(row.created)


@admin.register(Trial)
class TrialAdmin(LifecycleAdmin):
    icon = "experiment"
    list_display = ("number", "sweep_link", "state_badge", "chosen", "reached", "job_link", "why")
    list_filter = ("state",)
    search_fields = ("sweep__name", "sweep__user__username", "job__name", "reason")
    search_help_text = _("Sweep, username, job or reason")
    ordering = ("-id",)
    list_select_related = ("sweep__user", "job__user")
    fieldsets = (
        (None, {"fields": (("number", "sweep_link"), ("state_badge", "job_link"), ("started", "ended"), "why")}),
        (_("Values"), {"fields": ("chosen", "reached", "gpu_s")}),
    )

    @display(description=_("sweep"), ordering="sweep__name")
    def sweep_link(self, row: Trial) -> str:
        return link(url_of(row.sweep), row.sweep)

    @display(description=_("job"))
    def job_link(self, row: Trial) -> str:
        return link(url_of(row.job), row.job) if row.job else "-"

    @display(description=_("values"))
    def chosen(self, row: Trial) -> str:
        return short(", ".join(f"{name}={space.text_of(value)}" for name, value in row.ordered(row.sweep).items()))

    @display(description=_("results"))
    def reached(self, row: Trial) -> str:
        return format_html_join(", ", "{}", ((measured(value),) for value in row.values or [])) or "-"

    @display(description=_("reason"))
    def why(self, row: Trial) -> str:
        return short(translate(row.reason)) or "-"
