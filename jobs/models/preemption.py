"""Columns of a job that may be interrupted for another one (jobs.preemption)."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Preemptible(models.Model):
    """What a job that goes back to the queue keeps of its earlier runs."""

    preemptible = models.BooleanField(_("preemptible"), default=False, db_default=False)
    preemptions = models.PositiveSmallIntegerField(_("preemptions"), default=0, db_default=0)
    stepping_back = models.DateTimeField(_("asked to stop"), null=True, blank=True)  # while it gives its resources back
    preempted_for = models.ForeignKey(  # the last time; that job is admitted before all others
        "jobs.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_index=False,
        verbose_name=_("preempted for"),
    )  # fmt: skip
    requeued = models.DateTimeField(null=True, blank=True)  # since when it is in the queue again
    queued_s = models.FloatField(default=0, db_default=0)  # in the queue since its first start

    class Meta:
        abstract = True

    @property
    def attempts_allowed(self) -> int:
        """Return how many runs it may have: being preempted is no failed attempt."""
        return self.retries + 1 + self.preemptions

    @property
    def ran_for(self) -> float | None:
        """Return the seconds from the start to the end, or until now, without those in the queue; None before the
        start.
        """
        if not self.started:
            return None
        until = self.requeued or self.ended or timezone.now()
        return (until - self.started).total_seconds() - self.queued_s
