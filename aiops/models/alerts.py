"""Saved searches, alert rules and the alerts that they fired. Written by aiops.judging, read by pages and REST."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from kernel.messages import ReasonField

from .rates import RateAnomaly


class SavedSearch(models.Model):
    """The filters of a search under a name. `filters` are those of log_search.body, without times.

    It is a query only: each user who runs it sees the lines that they may see. `tenant`: its members can run it, too.
    """

    stored_by = "r.owner_id"  # kernel.stored

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", verbose_name=_("owner")
    )
    name = models.CharField(_("name"), max_length=64)
    filters = models.JSONField(_("filters"), default=dict)
    tenant = models.ForeignKey(
        "resources.Tenant",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=_("shared with the tenant"),
    )
    created = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "aiops_search"
        verbose_name = _("saved search")
        verbose_name_plural = _("saved searches")
        ordering = ["name", "id"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="aiops_search_once")]

    def __str__(self) -> str:
        return self.name


class AlertRule(models.Model):
    """A condition that its owner and the `recipients` are notified of. Blank names match any.

    `checked`: templates up to then were examined. `next_check`: not examined before; None for at once. `percent` and
    `direction` are of the kind CHANGE, `search` of SEARCH and CHANGE. Of TEMPLATE_RATE, `direction` UP is too often,
    DOWN is silent.
    """

    class Kind(models.TextChoices):
        RATE = "rate", _("many anomalies")
        NEW_TEMPLATE = "new_template", _("a new template")
        MISSING = "missing", _("no log lines")
        SEARCH = "search", _("many lines of a search")
        CHANGE = "change", _("a changed number of lines")
        TEMPLATE_RATE = "template_rate", _("a template too often or silent")
        SESSION = "session", _("unusual sessions")

    class Direction(models.TextChoices):
        UP = "up", _("more lines")
        DOWN = "down", _("fewer lines")
        BOTH = "both", _("more or fewer lines")

    name = models.CharField(_("name"), max_length=64)
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    cluster = models.CharField(_("cluster"), max_length=253, blank=True)
    namespace = models.CharField(_("namespace"), max_length=253, blank=True)
    deployment = models.CharField(_("deployment"), max_length=253, blank=True)
    search = models.ForeignKey(
        SavedSearch,
        null=True,
        blank=True,
        on_delete=models.RESTRICT,
        related_name="rules",
        verbose_name=_("saved search"),
    )
    threshold = models.PositiveIntegerField(_("threshold"), default=10)
    percent = models.PositiveIntegerField(_("change (percent)"), default=100)
    direction = models.CharField(_("direction"), max_length=4, choices=Direction.choices, default=Direction.UP)
    window_s = models.PositiveIntegerField(_("window (s)"), default=300)
    quiet_s = models.PositiveIntegerField(_("cooldown (s)"), default=3600)
    enabled = models.BooleanField(_("enabled"), default=True)
    muted_until = models.DateTimeField(_("muted until"), null=True, blank=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", verbose_name=_("owner")
    )
    recipients = models.ManyToManyField(
        settings.AUTH_USER_MODEL,
        blank=True,
        related_name="+",
        db_table="aiops_alert_recipient",
        verbose_name=_("other recipients"),
    )
    created = models.DateTimeField(_("created"))
    checked = models.DateTimeField(_("checked"))
    next_check = models.DateTimeField(_("next check"), null=True, blank=True)
    last_fired = models.DateTimeField(_("last fired"), null=True, blank=True)

    class Meta:
        db_table = "aiops_alert_rule"
        verbose_name = _("alert rule")
        verbose_name_plural = _("alert rules")
        ordering = ["name", "id"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="aiops_alert_rule_once")]

    def __str__(self) -> str:
        return self.name


class Alert(models.Model):
    """One alert: `count` is of anomalies, lines, templates or silent workloads.

    `rates` are what an alert of the kind TEMPLATE_RATE is about; `ended` is when the last of them did.
    `samples` are some of the lines, [{"id", "time", "log"}]; `link` is the address of all of them.
    """

    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="alerts", verbose_name=_("rule"))
    at = models.DateTimeField(_("when"))
    words = ReasonField(_("what"))
    workload = models.CharField(_("workload"), max_length=800)
    count = models.BigIntegerField(_("count"))
    samples = models.JSONField(_("sample lines"), default=list, blank=True)
    link = models.TextField(_("link"), blank=True, default="")
    rates = models.ManyToManyField(
        RateAnomaly, blank=True, related_name="alerts", db_table="aiops_alert_rate", verbose_name=_("unusual rates")
    )
    ended = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        db_table = "aiops_alert"
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.workload}: {self.words}"
