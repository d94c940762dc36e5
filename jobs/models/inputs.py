"""RunInput: a dataset that a run has read, as its MLflow client describes it. Written only through tracking.mlflow."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .job import Job


class RunInput(models.Model):
    """One version of a dataset, known by its name and digest, and in which context the run has used it."""

    stored_by = "(SELECT user_id FROM job WHERE id = r.job_id)"  # kernel.stored

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="inputs", db_index=False)
    name = models.CharField(_("name"), max_length=500)
    digest = models.CharField(_("digest"), max_length=36)
    source_type = models.CharField(_("kind of source"), max_length=500, blank=True)
    source = models.TextField(_("source"), blank=True)
    schema = models.TextField(_("schema"), blank=True)
    profile = models.TextField(_("profile"), blank=True)
    tags = models.JSONField(_("tags"), default=dict, blank=True)
    context = models.CharField(_("context"), max_length=500, blank=True)  # the value of its tag mlflow.data.context

    class Meta:
        db_table = "run_input"
        verbose_name = _("input")
        verbose_name_plural = _("inputs")
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["job", "name", "digest"], name="run_input_once")]
        indexes = [models.Index(fields=["name", "digest"], name="run_input_name")]

    def __str__(self) -> str:
        return f"{self.name} {self.digest}"
