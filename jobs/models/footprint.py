"""What a job takes: its files on the disk (jobs.sizes), its rows in the database (kernel.stored); and what has been
removed of it (jobs.retention).
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

ROW_BYTES, VALUE_BYTES = 1000, 200  # of a job beside its texts, and of a value, with their places in indexes
TEXTS = "r.datasets, r.job_inputs, r.args, r.env, r.tags, r.system_tags, r.notes, r.title"
UNREMOVED = Q(log_removed=None) | Q(metrics_removed=None) | Q(output_removed=None)


class Footprint(models.Model):
    """The bytes of a job's folder as of `output_measured`; null until they are counted, and again when it has ended."""

    stored_by = "r.user_id"
    # Metrics and values by their number, which is in the job's row: no trigger is needed where thousands come a second.
    stored_size = f"octet_length(concat({TEXTS})) + {ROW_BYTES} + {VALUE_BYTES} * r.values_kept"

    output_bytes = models.BigIntegerField(_("bytes on the disk"), null=True, blank=True)
    output_measured = models.DateTimeField(_("measured"), null=True, blank=True)

    # When what is kept of an ended job was removed by its tenant's policy.
    log_removed = models.DateTimeField(_("log removed"), null=True, blank=True)
    metrics_removed = models.DateTimeField(_("metrics removed"), null=True, blank=True)
    output_removed = models.DateTimeField(_("output removed"), null=True, blank=True)

    class Meta:
        abstract = True

    def has_more(self) -> None:
        """Record that the job runs again: there will be more of everything."""
        self.log_removed = self.metrics_removed = self.output_removed = None
