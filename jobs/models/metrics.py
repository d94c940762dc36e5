"""Metrics and Value: what a job's script reports. Written only through tracking.metrics.recording."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .job import Job


class Metrics(models.Model):
    """One report of a job's script. `seq` orders a job's rows without gaps; `msg_id` makes repeats count once."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metrics", verbose_name=_("job"))
    seq = models.PositiveIntegerField(_("number"))
    epoch = models.BigIntegerField(_("epoch"))
    accuracy = models.FloatField(_("accuracy"), null=True)  # null: the script did not report it
    loss = models.FloatField(_("loss"), null=True)
    progress = models.SmallIntegerField(_("progress"))
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=1)
    msg_id = models.CharField(_("message"), max_length=200)
    at = models.DateTimeField(_("at"), default=timezone.now)

    class Meta:
        db_table = "metrics"
        verbose_name = _("metrics")
        verbose_name_plural = _("metrics")
        ordering = ["seq"]
        constraints = [
            models.UniqueConstraint(fields=["job", "seq"], name="metrics_seq_once"),
            models.UniqueConstraint(fields=["job", "msg_id"], name="metrics_message_once"),
            models.CheckConstraint(condition=Q(epoch__gte=0), name="metrics_epoch"),
            models.CheckConstraint(condition=Q(progress__gte=-1, progress__lte=100), name="metrics_progress"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} #{self.seq}"


class Value(models.Model):
    """One number under a name that the script chose, at a step. A job's rows are ordered by their keys."""

    # Its index would be that of the constraint below. The database does not look for the job of each row, which was a
    # third of the cost of adding them: who adds or removes rows holds the job's lock.
    job = models.ForeignKey(
        Job, on_delete=models.CASCADE, related_name="values", verbose_name=_("job"), db_index=False, db_constraint=False
    )
    name = models.CharField(_("name"), max_length=250)
    step = models.BigIntegerField(_("step"))
    value = models.FloatField(_("value"))
    at = models.DateTimeField(_("at"))
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=1)
    msg_id = models.CharField(_("message"), max_length=200)

    class Meta:
        db_table = "metric_value"
        verbose_name = _("value")
        verbose_name_plural = _("values")
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["job", "msg_id", "name"], name="value_message_once"),
        ]
        indexes = [models.Index(fields=["job", "name", "id"], name="value_series")]

    def __str__(self) -> str:
        return f"{self.job_id} {self.name} #{self.step}"


class Block(models.Model):
    """Some thousand consecutive points of one series, summarised, so that a chart of a million need not read them all.

    `source` and `first`..`last`: the rows that it covers, by Value.id or Metrics.seq, all of one attempt. `coarse` and
    `fine` are buckets of points, packed (tracking.metrics.blocks, which also writes them). Blocks are derived data.
    """

    class Source(models.IntegerChoices):
        VALUES = 0
        METRICS = 1

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+", verbose_name=_("job"))
    source = models.PositiveSmallIntegerField(choices=Source.choices)
    name = models.CharField(_("name"), max_length=250)
    attempt = models.PositiveSmallIntegerField(_("attempt"))
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    count = models.IntegerField()
    low_step = models.BigIntegerField()
    high_step = models.BigIntegerField()
    low_at = models.DateTimeField()
    high_at = models.DateTimeField()
    low = models.FloatField(null=True)  # of the finite values
    high = models.FloatField(null=True)
    bad = models.IntegerField(default=0)  # values that are not finite
    bad_row = models.BigIntegerField(null=True)  # the first of them
    coarse = models.BinaryField()
    fine = models.BinaryField()

    class Meta:
        db_table = "metric_block"
        verbose_name = _("block of values")
        verbose_name_plural = _("blocks of values")
        constraints = [models.UniqueConstraint(fields=["job", "source", "name", "first"], name="block_once")]

    def __str__(self) -> str:
        return f"{self.job_id} {self.name} {self.first}..{self.last}"
