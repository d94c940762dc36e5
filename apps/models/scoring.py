"""The jobs that score a dataset with a model."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Scoring(models.Model):
    """Which model a job scores with. Written only through apps.batch."""

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="scoring", verbose_name=_("job"))
    model = models.ForeignKey(
        "models_app.Model", on_delete=models.SET_NULL, null=True, related_name="scorings", verbose_name=_("model")
    )
    output = models.CharField(_("dataset"), max_length=50)

    class Meta:
        db_table = "app_scoring"
        verbose_name = _("scoring")
        verbose_name_plural = _("scorings")

    def __str__(self) -> str:
        return f"{self.job} > {self.output}"
