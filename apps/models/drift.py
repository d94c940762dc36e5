"""What an application is asked and answers, compared with a reference: its settings, and the windows that were."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import models
from django.db.models import Value
from django.utils.translation import gettext_lazy as _

from kernel.messages import ReasonField

from .application import Application


class DriftCheck(models.Model):
    """How the drift of an application is looked for. Written only through apps.drift.

    The reference is a dataset (`name` or `name@version`) or the application's records from `since` to `until`;
    `profile` is what is kept of it (columns.profile_of), None until it is read. `compared_to` is the end of the last
    window that was compared. `next_look` is when a task is sent next; while one works, when another takes its place.
    """

    class Window(models.TextChoices):
        HOUR = "hour", _("hour")
        DAY = "day", _("day")

    stored_by = "r.user_id"  # kernel.stored

    app = models.OneToOneField(Application, on_delete=models.CASCADE, related_name="drift_check")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    on = models.BooleanField(_("on"), default=False)
    dataset = models.CharField(_("dataset"), max_length=120, blank=True, default="")
    target = models.CharField(_("column of the answer"), max_length=100, blank=True, default="")
    since = models.DateTimeField(_("from"), null=True, blank=True)
    until = models.DateTimeField(_("until"), null=True, blank=True)
    window = models.CharField(_("window"), max_length=4, choices=Window.choices, default=Window.DAY)
    least = models.PositiveIntegerField(_("fewest records"), default=100)
    alpha = models.FloatField(_("false discovery rate"), default=0.05)
    distance = models.FloatField(_("least distance"), default=0.1)
    share = models.FloatField(_("share of the features"), default=0.5)
    kinds = models.JSONField(_("kinds of features"), default=dict, db_default=Value({}, models.JSONField()))
    profile = models.JSONField(null=True, blank=True)
    profiled = models.DateTimeField(_("reference read"), null=True, blank=True)
    problem = ReasonField(_("reason"), blank=True)
    compared_to = models.DateTimeField(null=True, blank=True)
    drifting_since = models.DateTimeField(_("drifting since"), null=True, blank=True)
    alerted = models.BooleanField(default=False)  # the owner knows of this drift, and is to know of its end
    next_look = models.DateTimeField(null=True, blank=True)
    changes = models.PositiveIntegerField(default=0)  # of the reference: what was compared with another one is dropped

    class Meta:
        db_table = "app_drift_check"
        verbose_name = _("drift check of an application")
        verbose_name_plural = _("drift checks of applications")
        indexes = [models.Index(fields=["next_look"], name="drift_check_due", condition=models.Q(on=True))]

    def __str__(self) -> str:
        return str(self.app)

    @property
    def has_reference(self) -> bool:
        return bool(self.dataset or self.since)

    @property
    def length(self) -> timedelta:
        return timedelta(hours=1) if self.window == self.Window.HOUR else timedelta(days=1)


class DriftWindow(models.Model):
    """The records of one hour or day, compared with the reference. Written only through apps.drift.

    `features` are those of comparing.compare, the most drifted first; none where there were too few records.
    """

    class Verdict(models.TextChoices):
        STEADY = "steady", _("no drift")
        DRIFT = "drift", _("drift")
        FEW = "few", _("too few records")
        UNREAD = "unread", _("not readable")

    stored_by = "r.user_id"  # kernel.stored

    app = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="drift_windows")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    begin = models.DateTimeField(_("from"))
    end = models.DateTimeField(_("until"))
    verdict = models.CharField(_("result"), max_length=6, choices=Verdict.choices)
    count = models.PositiveIntegerField(_("records"))
    compared = models.PositiveSmallIntegerField(_("features compared"), default=0)
    drifted = models.PositiveSmallIntegerField(_("features drifted"), default=0)
    features = models.JSONField(default=list)

    class Meta:
        db_table = "app_drift_window"
        verbose_name = _("drift window")
        verbose_name_plural = _("drift windows")
        constraints = [models.UniqueConstraint(fields=["app", "begin"], name="drift_window_once")]

    def __str__(self) -> str:
        return f"{self.app_id} {self.begin:%Y-%m-%dT%H:%M}"

    @property
    def share(self) -> float:
        """Return the share of the compared features that have drifted."""
        return self.drifted / self.compared if self.compared else 0.0
