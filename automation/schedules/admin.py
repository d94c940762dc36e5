"""Schedules and their firings for administrators: list, pause, resume, delete. Imported by automation.admin."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from automation.models import Firing, Schedule
from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import badge, link, list_address, moment, short, url_of
from kernel.messages import translate

from . import lifecycle


def _verb(function):
    """Return what runs a function of the lifecycle for a row."""
    return lambda schedule, by: function(user=schedule.user, name=schedule.name, by=by)


@admin.register(Schedule)
class ScheduleAdmin(LifecycleAdmin):
    icon = "schedule"
    list_display = ("name", "title", "user_link", "state_badge", "kind", "when", "next_one", "firings_link", "why")
    list_filter = ("state", "kind")
    search_fields = ("name", "title", "user__username", "reason")
    search_help_text = _("Name, title, username or reason")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user",)
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("state_badge", "firings_link"), ("created", "next_one"), "why")}),
        (_("Times"), {"fields": ("when", ("overlap", "catch_up"), "failures")}),
        (_("What is submitted"), {"fields": ("kind", "entry", "snapshot")}),
    )
    verbs = {
        "pause": Verb(label=_("Pause"), run=_verb(lifecycle.pause), transition="pause", icon="pause_circle"),
        "resume": Verb(label=_("Resume"), run=_verb(lifecycle.resume), transition="resume", icon="play_circle"),
        "delete": Verb(
            label=_("Delete"), run=_verb(lifecycle.delete_schedule), transition="erase", icon="delete", tone="danger",
            question=_("What it has submitted goes on."), permission="delete",
        ),
    }  # fmt: skip

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Schedule) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("times"))
    def when(self, row: Schedule) -> str:
        if row.cron:
            return f"{row.cron} ({row.time_zone})"
        return " ".join(row.event.get(key, "") for key in ("on", "name")).strip()

    @display(description=_("next time"), ordering="next_at")
    def next_one(self, row: Schedule) -> str:
        return moment(row.next_at) if row.next_at else "-"

    @display(description=_("firings"), ordering="submitted")
    def firings_link(self, row: Schedule) -> str:
        return link(list_address("automation_firing", schedule__id__exact=row.pk), row.submitted)

    @display(description=_("script"))
    def entry(self, row: Schedule) -> str:
        return lifecycle.entry_of(row)

    @display(description=_("reason"))
    def why(self, row: Schedule) -> str:
        return short(translate(row.reason)) or "-"


@admin.register(Firing)
class FiringAdmin(LifecycleAdmin):
    icon = "alarm"
    list_display = ("at_time", "schedule_link", "state_shown", "made_link", "why")
    list_filter = ("state",)
    search_fields = ("schedule__name", "schedule__user__username", "made", "reason")
    search_help_text = _("Schedule, username, job or reason")
    ordering = ("-id",)
    list_select_related = ("schedule__user", "job__user", "sweep__user", "run__pipeline__user")
    fieldsets = ((None, {"fields": (("schedule_link", "state_shown"), ("planned", "at"), "made_link", "why")}),)

    @display(description=_("at"), ordering="at")
    def at_time(self, row: Firing) -> str:
        return moment(row.at)

    @display(description=_("state"), ordering="state")
    def state_shown(self, row: Firing) -> str:
        return badge(row.state, row.get_state_display())

    @display(description=_("schedule"), ordering="schedule__name")
    def schedule_link(self, row: Firing) -> str:
        return link(url_of(row.schedule), row.schedule)

    @display(description=_("submitted"))
    def made_link(self, row: Firing) -> str:
        target = row.job or row.sweep or row.run
        return link(url_of(target), target) if target else row.made or "-"

    @display(description=_("reason"))
    def why(self, row: Firing) -> str:
        return short(translate(row.reason)) or "-"
