"""The database's rows about logs: lines with verdicts, counts by workload, templates, offsets of followed files.

`LogLine`, `LogKey`, `LogMinute` and `Workload` are written by aiops.logstore only, `FollowedFile` by
aiops.intake.follow.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from .workload_key import WorkloadKey


class Level(models.TextChoices):
    NONE = "", _("not judged yet")
    NORMAL = "Normal", _("normal")
    ANOMALY = "Anomaly", _("anomaly")


class LogLine(models.Model):
    """One line. `line_id` is its document id; `time` is in ms since 1970; `confidence` 0..1, low for an anomaly.

    `attributes` are what else its sender said of it, as texts; `unexpected` are [position, word] of the masked text
    that the model did not expect, or [position, value, usual ones] of a value.

    The table is partitioned by `time` (aiops/logstore/partitions.py); in the database its primary key is (time, id).
    """

    line_id = models.CharField(_("id"), max_length=100)  # unique by LogKey
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
            models.Index(fields=["cluster", "namespace", "deployment", "-time"], name="aiops_log_workload"),
            models.Index(fields=["-time"], name="aiops_log_anomalies", condition=Q(level="Anomaly")),
            models.Index(fields=["time"], name="aiops_log_unjudged", condition=Q(level="", log_type="workload")),
            models.Index(
                fields=["template_id", "-time"], name="aiops_log_template", condition=Q(template_id__isnull=False)
            ),
            BrinIndex(fields=["id"], name="aiops_log_number", pages_per_range=32),
        ]

    def __str__(self) -> str:
        return self.line_id


class LogKey(models.Model):
    """The id of a stored line, as the first half of its SHA-256, with where the line is: it makes ids unique across the
    partitions of LogLine, which no index of theirs can.
    """

    key = models.UUIDField(primary_key=True)
    time = models.BigIntegerField()
    line = models.BigIntegerField()  # LogLine.id

    class Meta:
        db_table = "aiops_log_key"

    def __str__(self) -> str:
        return str(self.key)


class LogMinute(models.Model):
    """The number of stored lines of a workload in a minute (since 1970) by verdict, so that charts count no lines.

    Lines without a namespace or deployment are counted, too.
    """

    minute = models.BigIntegerField()
    cluster = models.CharField(max_length=253)
    namespace = models.CharField(max_length=253)
    deployment = models.CharField(max_length=253)
    unjudged = models.BigIntegerField(default=0)
    normal = models.BigIntegerField(default=0)
    anomalies = models.BigIntegerField(default=0)

    class Meta:
        db_table = "aiops_log_minute"
        constraints = [
            models.UniqueConstraint(
                fields=["minute", "cluster", "namespace", "deployment"], name="aiops_log_minute_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.minute} {self.cluster}/{self.namespace}/{self.deployment}"


class Workload(WorkloadKey):
    """The number of stored lines of a workload, updated with each batch, so that lines need not be counted."""

    lines = models.BigIntegerField(_("lines"), default=0)
    last = models.BigIntegerField(_("last line"), default=0)

    class Meta:
        db_table = "aiops_workload"
        verbose_name = _("workload")
        verbose_name_plural = _("workloads")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "namespace", "deployment"], name="aiops_workload_once")
        ]


class WatchedWorkload(models.Model):
    """A workload of the local cluster that its owner watches, beside the watchlist of the administrators."""

    namespace = models.CharField(_("namespace"), max_length=253)
    deployment = models.CharField(_("deployment"), max_length=253)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", verbose_name=_("who")
    )
    at = models.DateTimeField(_("when"), auto_now_add=True)

    class Meta:
        db_table = "aiops_watched"
        verbose_name = _("watched workload")
        verbose_name_plural = _("watched workloads")
        ordering = ["namespace", "deployment"]
        constraints = [models.UniqueConstraint(fields=["namespace", "deployment"], name="aiops_watched_once")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.deployment}"


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
    """A user's verdict on a text: it overrides the model's, at once and, if it is for all lines, in the next training.

    `namespace`: it is for lines of that namespace of the local cluster only; "" for all lines. `settled`: the lines
    stored before have the verdict, too.
    """

    stored_by = "r.by_id"  # kernel.stored

    namespace = models.CharField(_("namespace"), max_length=253, blank=True, default="", db_default="")
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
        constraints = [models.UniqueConstraint(models.functions.MD5("masked"), "namespace", name="aiops_feedback_once")]
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
