"""The manifests of external models, whose files stay in a bucket."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from datasets.models import Listing

from .model import Model


class ModelManifest(Listing):
    """The objects of an external model, as they were listed when it was created. Written only through
    models_app.fetched and the cache of buckets.
    """

    stored_by = "(SELECT user_id FROM model WHERE id = r.model_id)"  # kernel.stored

    model = models.OneToOneField(Model, on_delete=models.CASCADE, primary_key=True, related_name="manifest")

    class Meta:
        db_table = "model_manifest"
        verbose_name = _("manifest of a model")
        verbose_name_plural = _("manifests of models")
        indexes = [models.Index(fields=["used"], name="model_manifest_cached", condition=Q(cached__isnull=False))]

    def __str__(self) -> str:
        return f"{self.model_id}"
