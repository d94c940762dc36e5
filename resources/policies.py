"""Policies of a tenant: how long what its users keep is kept (resources.retention), whether it has a log model of its
own (aiops.judging.own_models), what interactive work it allows (workspaces.policy, jobs.attach), whether the moves of
applications to another model need an approval (apps.approvals), and for how long their requests may be recorded
(apps.records). Columns of Tenant.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

MAX_DAYS = 3650
MAX_WORKSPACE_HOURS = 10_000
RETENTION = ("trash_days", "log_days", "metrics_days", "output_days")
LOGS = ("log_model",)
ROLLOUTS = ("approves_rollouts",)
RECORDS = ("record_days",)
INTERACTIVE = ("allows_workspaces", "workspace_idle_minutes", "workspace_hours", "allows_attach")


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


class InteractivePolicy(models.Model):
    """Whether members may have workspaces and attach to their running jobs, and how long a workspace may be idle and
    run; null: as the settings of the platform say, which no tenant can exceed.
    """

    allows_workspaces = models.BooleanField(_("allows workspaces"), default=True, db_default=True)
    workspace_idle_minutes = models.PositiveIntegerField(
        _("idle workspaces are stopped after (minutes)"), null=True, blank=True
    )
    workspace_hours = models.PositiveIntegerField(_("workspaces are stopped after (hours)"), null=True, blank=True)
    allows_attach = models.BooleanField(_("allows attaching to running jobs"), default=True, db_default=True)

    class Meta:
        abstract = True


class RolloutPolicy(models.Model):
    """Whether one of the tenant's administrators approves each step by which more requests go to another model."""

    approves_rollouts = models.BooleanField(_("approves rollouts"), default=False, db_default=False)

    class Meta:
        abstract = True


class RecordPolicy(models.Model):
    """The most days for which requests to applications may be recorded; 0: not at all, null: any number."""

    record_days = models.PositiveSmallIntegerField(_("days that requests may be recorded"), null=True, blank=True)

    class Meta:
        abstract = True
