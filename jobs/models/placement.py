"""What a job's run is made of, beside its code: the packages that it brings."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Placement(models.Model):
    """The columns of a job that decide on what its run starts."""

    requirements = models.TextField(_("packages"), blank=True, default="", db_default="")
    packages = models.CharField(max_length=64, blank=True, default="", db_default="")  # their environment's digest

    class Meta:
        abstract = True
