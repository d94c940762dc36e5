"""What a job's files take on the disk (jobs.sizes), and when they were read last."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Footprint(models.Model):
    """The bytes of a job's folder as of `output_measured`; null until they are counted, and again when it has ended."""

    output_bytes = models.BigIntegerField(_("bytes on the disk"), null=True, blank=True)
    output_measured = models.DateTimeField(_("measured"), null=True, blank=True)

    class Meta:
        abstract = True
