"""The sessions of watched workloads, and those that were odd. Written by aiops.judging.sessions only."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .workload_key import WorkloadKey


class SessionClock(WorkloadKey):
    """Up to where the lines of a watched workload are read for its sessions: `until`, in ms since 1970.

    `since`: a session that is still open may have lines from then on; who takes over reads from there.
    """

    since = models.BigIntegerField(_("open since"))
    until = models.BigIntegerField(_("read up to"))

    class Meta:
        db_table = "aiops_session_clock"
        verbose_name = _("workload with sessions")
        verbose_name_plural = _("workloads with sessions")
        constraints = [
            models.UniqueConstraint(fields=["cluster", "namespace", "deployment"], name="aiops_session_clock_once")
        ]


class SessionAnomaly(models.Model):
    """A session unlike all normal ones: the lines with `value`, from `since` to `last` (ms since 1970).

    `attribute`: the name of the attribute that has the value, "" where the text has it. `reasons` are [kind, template,
    number here, usual number], the worst first; of the kind `order` [kind, first template, second template].
    `shape`: as in Suppression; empty where it is too large. `suppression`: by which it is normal.
    """

    class Reason(models.TextChoices):
        EXTRA = "extra", _("extra")
        MISSING = "missing", _("missing")
        OFTEN = "often", _("too often")
        FEW = "few", _("too few")
        ORDER = "order", _("out of order")

    clock = models.ForeignKey(
        SessionClock, on_delete=models.CASCADE, related_name="anomalies", verbose_name=_("workload")
    )
    attribute = models.CharField(_("attribute"), max_length=253, blank=True)
    value = models.CharField(_("value"), max_length=128)
    since = models.BigIntegerField(_("since"))
    last = models.BigIntegerField(_("last line"))
    lines = models.PositiveIntegerField(_("lines"))
    found = models.DateTimeField(_("found"), auto_now_add=True)
    reasons = models.JSONField(_("reasons"), default=list)
    shape = models.JSONField(_("shape"), default=list)
    suppression = models.ForeignKey(
        "aiops.Suppression",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=_("suppression"),
    )

    class Meta:
        db_table = "aiops_session_anomaly"
        verbose_name = _("unusual session")
        verbose_name_plural = _("unusual sessions")
        ordering = ["-since", "-id"]
        constraints = [models.UniqueConstraint(fields=["clock", "value", "since"], name="aiops_session_anomaly_once")]
        indexes = [models.Index(fields=["clock", "-since"], name="aiops_session_anomaly_newest")]

    def __str__(self) -> str:
        return self.value
