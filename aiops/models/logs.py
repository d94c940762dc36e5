"""The database's rows about logs: lines with verdicts, counts by workload, templates, offsets of followed files.

`LogLine` and `Workload` are written by aiops.logstore.database only, `FollowedFile` by aiops.intake.follow.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class Level(models.TextChoices):
    NONE = "", _("not judged yet")
    NORMAL = "Normal", _("normal")
    ANOMALY = "Anomaly", _("anomaly")


class LogLine(models.Model):
    """One line. `line_id` is its document id; `time` is in ms since 1970; `confidence` 0..1, low for an anomaly.

    `attributes` are what else its sender said of it, as texts; `unexpected` are [position, word] of the masked text
    that the model did not expect.
    """

    line_id = models.CharField(_("id"), max_length=100, unique=True)
    time = models.BigIntegerField(_("time"))
    cluster = models.CharField(_("cluster"), max_length=253)
    namespace = models.CharField(_("namespace"), max_length=253, blank=True)
    deployment = models.CharField(_("deployment"), max_length=253, blank=True)
    service = models.CharField(_("service"), max_length=253, blank=True)
    pod = models.CharField(_("pod"), max_length=253, blank=True)
    log_type = models.CharField(_("kind"), max_length=40, default="workload")
    log = models.TextField(_("line"))
    attributes = models.JSONField(_("attributes"), null=True, blank=True)
    masked = models.TextField(_("masked line"), blank=True)
    level = models.CharField(_("verdict"), max_length=10, choices=Level.choices, blank=True)
    template = models.TextField(_("template"), blank=True)
    template_id = models.BigIntegerField(_("template's number"), null=True, blank=True)
    model = models.CharField(_("judged by"), max_length=20, blank=True)
    confidence = models.FloatField(_("confidence"), null=True, blank=True)
    unexpected = models.JSONField(_("unexpected words"), null=True, blank=True)

    class Meta:
        db_table = "aiops_log"
        verbose_name = _("log line")
        verbose_name_plural = _("log lines")
        indexes = [
            models.Index(fields=["-time", "-id"], name="aiops_log_time"),
            models.Index(fields=["cluster", "namespace", "deployment", "-time"], name="aiops_log_workload"),
            models.Index(fields=["-time"], name="aiops_log_anomalies", condition=Q(level="Anomaly")),
            models.Index(fields=["id"], name="aiops_log_unjudged", condition=Q(level="", log_type="workload")),
            models.Index(fields=["template_id", "-time"], name="aiops_log_template"),
        ]

    def __str__(self) -> str:
        return self.line_id


class Workload(models.Model):
    """The number of stored lines of a workload, updated with each batch, so that lines need not be counted."""

    cluster = models.CharField(_("cluster"), max_length=253)
    namespace = models.CharField(_("namespace"), max_length=253)
    deployment = models.CharField(_("deployment"), max_length=253)
    lines = models.BigIntegerField(_("lines"), default=0)
    last = models.BigIntegerField(_("last line"), default=0)

    class Meta:
        db_table = "aiops_workload"
        verbose_name = _("workload")
        verbose_name_plural = _("workloads")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "namespace", "deployment"], name="aiops_workload_once")
        ]

    def __str__(self) -> str:
        return f"{self.cluster}/{self.namespace}/{self.deployment}"


class Template(models.Model):
    """A template of lines found by DRAIN. `first` and `last` are in ms since 1970."""

    template_id = models.CharField(_("number"), max_length=40, primary_key=True)
    text = models.TextField(_("template"))
    sample = models.TextField(_("sample"), blank=True)
    log_type = models.CharField(_("kind"), max_length=40, blank=True)
    first = models.BigIntegerField(_("first seen"))
    last = models.BigIntegerField(_("last changed"))

    class Meta:
        db_table = "aiops_template"
        verbose_name = _("template")
        verbose_name_plural = _("templates")

    def __str__(self) -> str:
        return self.template_id


class Feedback(models.Model):
    """A user's verdict on a text: it overrides the model's, at once and in the next training.

    `settled`: the lines stored before have the verdict, too.
    """

    masked = models.TextField(_("masked line"))
    sample = models.TextField(_("line"), blank=True)
    level = models.CharField(_("verdict"), max_length=10, choices=Level.choices)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, verbose_name=_("who"))
    at = models.DateTimeField(_("when"), auto_now=True)
    settled = models.BooleanField(_("in the stored lines"), default=False)

    class Meta:
        db_table = "aiops_feedback"
        verbose_name = _("feedback")
        verbose_name_plural = _("feedback")
        constraints = [models.UniqueConstraint(models.functions.MD5("masked"), name="aiops_feedback_once")]
        indexes = [
            models.Index(fields=["at"], name="aiops_feedback_at"),
            models.Index(fields=["id"], name="aiops_feedback_unsettled", condition=Q(settled=False)),
        ]

    def __str__(self) -> str:
        return f"{self.level}: {self.masked[:60]}"


class FollowedFile(models.Model):
    """The offset up to which a log file was read.

    `device`, `inode`, `head` (of its first line) and `tail` (of what was read last) identify it; `generation` names
    this reading of it, from its beginning.
    """

    path = models.CharField(max_length=500)
    device = models.BigIntegerField()
    inode = models.BigIntegerField()
    head = models.CharField(max_length=32)
    tail = models.CharField(max_length=32, blank=True)
    generation = models.CharField(max_length=80)
    offset = models.BigIntegerField(default=0)
    seen = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "aiops_followed_file"
        constraints = [models.UniqueConstraint(fields=["device", "inode"], name="aiops_followed_once")]

    def __str__(self) -> str:
        return self.path
