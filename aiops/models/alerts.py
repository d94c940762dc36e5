"""Operators' alert rules and the alerts they fired. Written by aiops.judging.alerts and the page; read by the admin."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from kernel.messages import ReasonField


class AlertRule(models.Model):
    """A condition that an operator is notified of. Blank names match any. `checked`: templates up to then were
    examined.
    """

    class Kind(models.TextChoices):
        RATE = "rate", _("many anomalies")
        NEW_TEMPLATE = "new_template", _("a new template")
        MISSING = "missing", _("no log lines")

    name = models.CharField(_("name"), max_length=64, unique=True)
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    cluster = models.CharField(_("cluster"), max_length=253, blank=True)
    namespace = models.CharField(_("namespace"), max_length=253, blank=True)
    deployment = models.CharField(_("deployment"), max_length=253, blank=True)
    threshold = models.PositiveIntegerField(_("anomalies"), default=10)
    window_s = models.PositiveIntegerField(_("window (s)"), default=300)
    quiet_s = models.PositiveIntegerField(_("cooldown (s)"), default=3600)
    enabled = models.BooleanField(_("enabled"), default=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", verbose_name=_("recipient")
    )
    created = models.DateTimeField(_("created"))
    checked = models.DateTimeField(_("checked"))
    last_fired = models.DateTimeField(_("last fired"), null=True, blank=True)

    class Meta:
        db_table = "aiops_alert_rule"
        verbose_name = _("alert rule")
        verbose_name_plural = _("alert rules")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Alert(models.Model):
    """One alert: `count` is of anomalies, new templates or silent workloads."""

    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="alerts", verbose_name=_("rule"))
    at = models.DateTimeField(_("when"))
    words = ReasonField(_("what"))
    workload = models.CharField(_("workload"), max_length=800)
    count = models.BigIntegerField(_("count"))

    class Meta:
        db_table = "aiops_alert"
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.workload}: {self.words}"
