"""The columns that name a workload."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class WorkloadKey(models.Model):
    """A row for a workload. Each model adds its constraint: one row for each cluster, namespace and deployment."""

    cluster = models.CharField(_("cluster"), max_length=253)
    namespace = models.CharField(_("namespace"), max_length=253)
    deployment = models.CharField(_("deployment"), max_length=253)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.cluster}/{self.namespace}/{self.deployment}"
