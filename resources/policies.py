"""Policies of a tenant: how long what its users keep is kept (resources.retention), and whether it has a log model of
its own (aiops.judging.own_models). Columns of Tenant.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

MAX_DAYS = 3650
RETENTION = ("trash_days", "log_days", "metrics_days", "output_days")
LOGS = ("log_model",)


class RetentionPolicy(models.Model):
    """Days; null: the setting of the platform for the trash, never for what ended jobs have."""

    trash_days = models.PositiveSmallIntegerField(_("days in the trash"), null=True, blank=True)
    log_days = models.PositiveSmallIntegerField(_("days until logs are removed"), null=True, blank=True)
    metrics_days = models.PositiveSmallIntegerField(_("days until metrics are removed"), null=True, blank=True)
    output_days = models.PositiveSmallIntegerField(_("days until outputs are removed"), null=True, blank=True)

    class Meta:
        abstract = True


class LogPolicy(models.Model):
    """Whether the log lines of those who are in this tenant only are judged by a model of the tenant's own."""

    log_model = models.BooleanField(_("log model of its own"), default=False, db_default=False)

    class Meta:
        abstract = True
