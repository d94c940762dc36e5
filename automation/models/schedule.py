"""Schedule and Firing. Written only through automation.schedules.

Schedule:
    active            --pause-->  paused     (by its owner, or since it could not submit several times in a row)
    paused            --resume--> active     (what was due meanwhile is not made up for)
    active, paused    --erase-->  deleting   (the row is deleted in the same transaction)

A firing has one row for each time or event, unique by its key: it is created in the transaction that submits the job or
sweep. So a killed platform neither loses a time nor acts twice on it.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel.messages import ReasonField
from kernel.models import Lifecycle, refused
from kernel.titles import Titled
from kernel.transitions import ConcurrentTransitionMixin


class ScheduleState(models.TextChoices):
    ACTIVE = "active", _("active")
    PAUSED = "paused", _("paused")
    DELETING = "deleting", _("deleting")


class FiringState(models.TextChoices):
    SUBMITTED = "submitted", _("submitted")
    WAITING = "waiting", _("waiting")
    SKIPPED = "skipped", _("skipped")
    FAILED = "failed", _("failed")
    MISSED = "missed", _("missed")


class Schedule(ConcurrentTransitionMixin, Titled, Lifecycle):
    """Submits a job, a sweep or a run of a pipeline at the times of a cron expression, or on an event.

    `kind` is job, sweep or pipeline; `spec` its body (automation.spec), whose `space` is a list of [name,
    parameter]. With a `snapshot` each run has the code of then; without one the code as it is when it fires.
    `event` is {on, name}; a schedule has either that or `cron`. `next_at` is the next time, of a cron schedule that
    is active. `seen` is the key up to which events were handled.
    """

    stored_by = "r.user_id"  # kernel.stored
    untitled = "schedule"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="schedules", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=50)
    state = FSMField(_("state"), default=ScheduleState.ACTIVE, choices=ScheduleState.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    notes = models.TextField(_("notes"), blank=True, default="")
    kind = models.CharField(_("submits"), max_length=10)
    spec = models.JSONField(_("what is submitted"))
    snapshot = models.ForeignKey(
        "jobs.Snapshot", on_delete=models.PROTECT, null=True, blank=True, related_name="schedules",
        verbose_name=_("code"),
    )  # fmt: skip
    cron = models.CharField(_("cron expression"), max_length=100, blank=True, default="")
    time_zone = models.CharField(_("time zone"), max_length=64, default="UTC")
    event = models.JSONField(_("event"), default=dict)
    overlap = models.CharField(_("while the last one runs"), max_length=10, default="skip")
    catch_up = models.CharField(_("missed times"), max_length=10, default="latest")
    next_at = models.DateTimeField(_("next time"), null=True, blank=True)
    seen = models.BigIntegerField(default=0)
    submitted = models.PositiveIntegerField(_("submitted"), default=0)
    failures = models.PositiveIntegerField(_("failures in a row"), default=0)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    since = models.DateTimeField(_("active since"))  # events before it are none of its

    class Meta:
        db_table = "schedule"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="schedule_name_once_per_user"),
            models.CheckConstraint(condition=Q(state__in=ScheduleState.values), name="schedule_state"),
        ]
        indexes = [
            models.Index(fields=["next_at"], name="schedule_due", condition=Q(state=ScheduleState.ACTIVE)),
        ]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @transition(
        field=state,
        source=ScheduleState.ACTIVE,
        target=ScheduleState.PAUSED,
        custom=refused("the schedule is already paused"),
    )
    def pause(self, *, by, reason=""):
        """Move from active to paused."""

    @transition(
        field=state,
        source=ScheduleState.PAUSED,
        target=ScheduleState.ACTIVE,
        custom=refused("the schedule is already active"),
    )
    def resume(self, *, by, reason=""):
        """Move from paused to active."""

    @transition(
        field=state,
        source=[ScheduleState.ACTIVE, ScheduleState.PAUSED],
        target=ScheduleState.DELETING,
        custom=refused("the schedule is already being deleted"),
    )
    def erase(self, *, by, reason=""):
        """Move to deleting."""


class Firing(models.Model):
    """What a schedule did at one time or on one event. `made` is the name of the job or sweep."""

    stored_by = "(SELECT user_id FROM schedule WHERE id = r.schedule_id)"  # kernel.stored

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="firings", verbose_name=_("schedule"))
    key = models.CharField(_("key"), max_length=100)
    state = models.CharField(_("state"), max_length=10, choices=FiringState.choices)
    reason = ReasonField(_("reason"), blank=True)
    planned = models.DateTimeField(_("planned"))
    at = models.DateTimeField(_("at"))
    made = models.CharField(_("submitted"), max_length=50, blank=True, default="")
    job = models.ForeignKey(
        "jobs.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="firings", verbose_name=_("job")
    )
    sweep = models.ForeignKey(
        "automation.Sweep", on_delete=models.SET_NULL, null=True, blank=True, related_name="firings",
        verbose_name=_("sweep"),
    )  # fmt: skip
    run = models.ForeignKey(
        "automation.PipelineRun", on_delete=models.SET_NULL, null=True, blank=True, related_name="firings",
        verbose_name=_("pipeline run"),
    )  # fmt: skip

    class Meta:
        db_table = "schedule_firing"
        verbose_name = _("firing")
        verbose_name_plural = _("firings")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["schedule", "key"], name="firing_key_once"),
            models.CheckConstraint(condition=Q(state__in=FiringState.values), name="firing_state"),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.key}"
