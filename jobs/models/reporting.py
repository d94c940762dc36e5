"""What a running job reports: how far it is and when it will end; which metrics still count; whether it idles."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kernel.messages import ReasonField


class ProgressSource(models.TextChoices):
    """The source of the last progress report."""

    NONE = "", _("nobody")
    SCRIPT = "script", _("the script")
    TRAINER = "trainer", _("the training framework")
    LOG = "log", _("the progress bar in the log")


class Reporting(models.Model):
    """The columns that reports of a run change, and those of jobs.idle."""

    progress = models.PositiveSmallIntegerField(_("progress"), default=0)
    progress_source = models.CharField(
        max_length=10, choices=ProgressSource.choices, blank=True, default="", db_default=""
    )
    expected_end = models.DateTimeField(null=True, blank=True)  # as the source of the progress said last
    metrics_from = models.DateTimeField(null=True, blank=True)  # reports sent earlier were deleted
    metrics_until = models.DateTimeField(null=True, blank=True)  # reports sent from then on are rejected
    values_kept = models.PositiveBigIntegerField(default=0)  # rows of metrics and values
    metrics_notice = ReasonField(blank=True, default="")  # why reports were refused or are not stored
    # Since when it is warned that it is idle, and what is: "gpu" or "cpu" (jobs.idle); null when it is not.
    idle_warned = models.DateTimeField(_("warned of idling"), null=True, blank=True)
    idle_kind = models.CharField(max_length=3, blank=True, default="", db_default="")
    idle_exempt = models.BooleanField(_("exempt from the idle policy"), default=False, db_default=False)

    class Meta:
        abstract = True

    @property
    def idle_stop(self) -> datetime | None:
        """Return when it is stopped because it is idle; None when it is not warned."""
        return self.idle_warned and self.idle_warned + timedelta(minutes=self.tenant.idle_grace_minutes)

    @property
    def left(self) -> tuple[float, str] | None:
        """Return the remaining seconds and their source: a ProgressSource, or "pace" if extrapolated from the progress
        so far.

        None if unknown.
        """
        if self.state != "running":
            return None
        if self.expected_end is not None:
            seconds = (self.expected_end - timezone.now()).total_seconds()
            return (seconds, self.progress_source) if seconds > 0 else None
        if not 0 < self.progress < 100 or self.attempt > 1:
            return None
        return self.ran_for * (100 - self.progress) / self.progress, "pace"

    @property
    def left_for(self) -> float | None:
        """Return the remaining seconds; None if unknown."""
        return self.left[0] if self.left else None

    @property
    def left_says(self) -> str:
        """Return the source of the remaining time: a ProgressSource or "pace"; "" if unknown."""
        return self.left[1] if self.left else ""
