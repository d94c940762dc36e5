"""What people have marked as normal: session shapes and rates that are not reported any more."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class Suppression(models.Model):
    """A kind of session, or a template's rate, that is normal in a workload. Written by aiops.judging.suppressions.

    Of a session, `shape` are its templates in the order in which they came first, [[text, lines], …], `value` is the id
    of the one that was marked, and `reasons` are those of its SessionAnomaly. Of a rate, the other fields are those of
    its RateAnomaly; `shape`, `value` and `reasons` are empty.
    """

    stored_by = "r.by_id"  # kernel.stored

    class Kind(models.TextChoices):
        SESSION = "session", _("session")
        OFTEN = "often", _("too often")
        SILENT = "silent", _("silent")

    kind = models.CharField(_("kind"), max_length=8, choices=Kind.choices)
    cluster = models.CharField(_("cluster"), max_length=253)
    namespace = models.CharField(_("namespace"), max_length=253)
    deployment = models.CharField(_("deployment"), max_length=253)
    value = models.CharField(_("value"), max_length=128, blank=True)
    shape = models.JSONField(_("shape"), default=list)
    reasons = models.JSONField(_("reasons"), default=list)
    template_id = models.BigIntegerField(_("template's number"), null=True, blank=True)
    template = models.TextField(_("template"), blank=True)
    since = models.BigIntegerField(_("since"))
    lines = models.BigIntegerField(_("lines"))
    low = models.BigIntegerField(_("usual low"), default=0)
    high = models.BigIntegerField(_("usual high"), default=0)
    note = models.CharField(_("note"), max_length=200, blank=True)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", verbose_name=_("by")
    )
    at = models.DateTimeField(_("when"), auto_now_add=True)

    class Meta:
        db_table = "aiops_suppression"
        verbose_name = _("suppression")
        verbose_name_plural = _("suppressions")
        ordering = ["-id"]
        indexes = [models.Index(fields=["cluster", "namespace", "deployment"], name="aiops_suppression_workload")]

    def __str__(self) -> str:
        return f"{self.kind}: {self.value or self.template[:60]}"
