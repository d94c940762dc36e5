"""How long what the users of a tenant keep is kept: columns of Tenant. What they mean is in resources.retention."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

MAX_DAYS = 3650
RETENTION = ("trash_days", "log_days", "metrics_days", "output_days")


class RetentionPolicy(models.Model):
    """Days; null: the setting of the platform for the trash, never for what ended jobs have."""

    trash_days = models.PositiveSmallIntegerField(_("days in the trash"), null=True, blank=True)
    log_days = models.PositiveSmallIntegerField(_("days until logs are removed"), null=True, blank=True)
    metrics_days = models.PositiveSmallIntegerField(_("days until metrics are removed"), null=True, blank=True)
    output_days = models.PositiveSmallIntegerField(_("days until outputs are removed"), null=True, blank=True)

    class Meta:
        abstract = True
