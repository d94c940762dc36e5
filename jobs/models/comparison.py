"""Comparison: runs side by side, saved under a name with the settings. Written only by tracking.compare.saved."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from .job import Job

MAX_NAME = 100


class Comparison(models.Model):
    """Some of a user's runs side by side. `query` has the settings of the page, as in its address.

    Who may read it may read its runs (jobs.apps), so it has runs of its own user only.
    """

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="comparisons", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=MAX_NAME)
    query = models.TextField(_("query"), blank=True, default="")
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())
    updated = models.DateTimeField(_("changed"), auto_now=True, db_default=Now())

    reading = None  # how a visitor reads another user's comparison: see accounts.sharing.access

    class Meta:
        db_table = "comparison"
        verbose_name = _("comparison")
        verbose_name_plural = _("comparisons")
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="comparison_name_once_per_user")]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @property
    def names(self) -> list[str]:
        """Return the names of its runs in order, without those in the trash."""
        rows = sorted(self.rows.all(), key=lambda row: row.place)
        return [row.job.name for row in rows if row.job.trashed is None]


class ComparedRun(models.Model):
    """A run of a comparison, and its place in it."""

    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, related_name="rows")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="compared")
    place = models.PositiveSmallIntegerField(_("place"))

    class Meta:
        db_table = "compared_run"
        verbose_name = _("compared run")
        verbose_name_plural = _("compared runs")
        constraints = [models.UniqueConstraint(fields=["comparison", "job"], name="compared_run_once")]

    def __str__(self) -> str:
        return f"{self.comparison_id}: {self.job_id}"
