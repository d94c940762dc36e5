"""How often templates come in the log of each watched workload, and when that was not usual.

Written by aiops.judging.rates only.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from .workload_key import WorkloadKey


class RateClock(WorkloadKey):
    """Up to where the lines of a watched workload are counted. `minute`: the next one, since 1970.

    `active`: the number of minutes so far in which the workload had lines. `calm_until`: nothing is judged or learned
    before that minute, because lines may still arrive late.
    """

    minute = models.BigIntegerField(_("counted up to"))
    active = models.BigIntegerField(_("active minutes"), default=0)
    calm_until = models.BigIntegerField(_("not judged until"), default=0)

    class Meta:
        db_table = "aiops_rate_clock"
        verbose_name = _("counted workload")
        verbose_name_plural = _("counted workloads")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "namespace", "deployment"], name="aiops_rate_clock_once")
        ]


class TemplateRate(models.Model):
    """What is usual of a template in a workload. `state` is that of judging.usual_rates.Usual.

    `last`: its last line, in ms. `silent_at`: the active minute at which it is silent if it does not come; None if it
    is not regular.
    """

    clock = models.ForeignKey(RateClock, on_delete=models.CASCADE, related_name="rates", verbose_name=_("workload"))
    template_id = models.BigIntegerField(_("template's number"))
    state = models.JSONField(_("state"), default=dict)
    last = models.BigIntegerField(_("last line"))
    silent_at = models.BigIntegerField(_("silent at"), null=True, blank=True)

    class Meta:
        db_table = "aiops_template_rate"
        verbose_name = _("rate of a template")
        verbose_name_plural = _("rates of templates")
        constraints = [models.UniqueConstraint(fields=["clock", "template_id"], name="aiops_template_rate_once")]
        indexes = [models.Index(fields=["clock", "silent_at"], name="aiops_rate_silent")]

    def __str__(self) -> str:
        return f"{self.template_id}"


class RateAnomaly(models.Model):
    """A time in which a template came too often, or did not come. Times in ms since 1970; `until` None: it goes on.

    `lines`: the most in a window of five minutes; of a silence the active minutes without the template. `low` and
    `high`: what was usual, lines in a window or minutes. `recovered`: it ended because the template came as usual.
    `suppression`: by which it is usual.
    """

    class Kind(models.TextChoices):
        OFTEN = "often", _("too often")
        SILENT = "silent", _("silent")

    clock = models.ForeignKey(RateClock, on_delete=models.CASCADE, related_name="anomalies", verbose_name=_("workload"))
    template_id = models.BigIntegerField(_("template's number"))
    template = models.TextField(_("template"))
    kind = models.CharField(_("kind"), max_length=8, choices=Kind.choices)
    since = models.BigIntegerField(_("since"))
    last = models.BigIntegerField(_("last seen"))
    until = models.BigIntegerField(_("until"), null=True, blank=True)
    recovered = models.BooleanField(_("recovered"), default=False)
    lines = models.BigIntegerField(_("lines"))
    low = models.BigIntegerField(_("usual low"))
    high = models.BigIntegerField(_("usual high"))
    suppression = models.ForeignKey(
        "aiops.Suppression",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=_("suppression"),
    )

    class Meta:
        db_table = "aiops_rate_anomaly"
        verbose_name = _("unusual rate")
        verbose_name_plural = _("unusual rates")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["clock", "template_id", "kind"], condition=Q(until__isnull=True), name="aiops_rate_anomaly_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.template[:60]}"
