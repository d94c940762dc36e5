"""RunParam and RunMetric: a row for each argument and each metric of a run, so that tables of runs are sorted and
filtered by an index. Written only through jobs.summaries, by the transaction that writes what they summarise.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Value
from django.db.models.functions import Coalesce, Left
from django.utils.translation import gettext_lazy as _

from .job import Job

MAX_NAME = 250
SORTED = 64  # characters of a parameter's text that tables are sorted by


class Source(models.TextChoices):
    ARGUMENT = "argument", _("argument")
    PARAMETER = "parameter", _("parameter")


class RunParam(models.Model):
    """One argument of a run, or one parameter that it has logged. `number` is its value where the text is a number;
    `place` is that number, infinite for other text, so that a table has numbers first and then the text.
    """

    stored_by = "r.user_id"  # kernel.stored

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="params", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    name = models.CharField(_("name"), max_length=MAX_NAME)
    text = models.TextField(_("value"))
    number = models.FloatField(null=True, blank=True)
    place = models.GeneratedField(
        expression=Coalesce("number", Value(float("inf"))), output_field=models.FloatField(), db_persist=True
    )
    source = models.CharField(max_length=10, choices=Source.choices, default=Source.ARGUMENT)
    attempt = models.PositiveSmallIntegerField(default=0, db_default=0)  # of the job that has logged it

    class Meta:
        db_table = "run_param"
        verbose_name = _("parameter")
        verbose_name_plural = _("parameters")
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="param_once")]
        indexes = [
            models.Index(F("user"), F("name"), F("place"), Left("text", SORTED), F("job"), name="param_by_value"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.name}={self.text[:50]}"


class RunMetric(models.Model):
    """The summary of one metric of a run: the last value and its step, the extremes, and the number of values.

    The extremes ignore NaN; they are NaN while nothing else was reported.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="summaries", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    name = models.CharField(_("name"), max_length=MAX_NAME)
    last = models.FloatField(_("last"))
    min = models.FloatField(_("minimum"))
    max = models.FloatField(_("maximum"))
    count = models.BigIntegerField(_("values"))
    step = models.BigIntegerField(_("last step"))
    at = models.DateTimeField(_("at"), null=True)  # of the last value; null in rows of older versions

    class Meta:
        db_table = "run_metric"
        verbose_name = _("metric")
        verbose_name_plural = _("metrics")
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="summary_once")]
        indexes = [
            models.Index(fields=["user", "name", "last", "job"], name="summary_by_last"),
            models.Index(fields=["user", "name", "min", "job"], name="summary_by_min"),
            models.Index(fields=["user", "name", "max", "job"], name="summary_by_max"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.name}"
