"""The shadow of an application: what came of the requests that were copied to another model."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Value
from django.utils.translation import gettext_lazy as _

from kernel.messages import ReasonField

from .application import Application


class Shadow(models.Model):
    """One time for which an application has had a shadow. Written only through apps.shadows.

    `percent` of the requests are copied, for `minutes` from when it is up; 0: until it is ended. `tolerance` is how far
    numbers may be apart, as a share of the larger one; the fields in `ignore` are not compared.

    Of the copies, `equal` have the same answer, `different` another one, `status` another status; `failed` have no
    answer, and of `unknown` the answers are too long to be compared. `dropped` are those that were not sent, since more
    requests came than the shadow has answered, and `unfit` those that are too large to be copied. `base_ms` and
    `shadow_ms` count latencies (apps.shadows.latencies), `hours` is what was counted in each hour.
    """

    class Outcome(models.TextChoices):
        PROMOTED = "promoted", _("promoted")
        ENDED = "ended", _("ended")
        OVER = "over", _("its time was over")
        FAILED = "failed", _("failed")

    COUNTS = ("equal", "different", "status", "failed", "unknown", "dropped", "unfit")

    app = models.ForeignKey(
        Application, on_delete=models.CASCADE, related_name="shadows", verbose_name=_("application")
    )
    model_name = models.CharField(_("model"), max_length=50)
    serves = models.CharField(_("serves"), max_length=50)
    by = models.CharField(_("requested by"), max_length=80)
    percent = models.PositiveSmallIntegerField(_("percent of the requests"))
    minutes = models.PositiveIntegerField(_("minutes"), default=0)
    tolerance = models.FloatField(_("tolerance"), default=1e-6)
    ignore = models.JSONField(default=list, db_default=Value([], models.JSONField()), blank=True)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    began = models.DateTimeField(_("ready since"), null=True, blank=True)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)
    outcome = models.CharField(_("outcome"), max_length=10, choices=Outcome.choices, blank=True)
    reason = ReasonField(_("reason"), blank=True)
    equal = models.BigIntegerField(_("equal answers"), default=0)
    different = models.BigIntegerField(_("different answers"), default=0)
    status = models.BigIntegerField(_("different statuses"), default=0)
    failed = models.BigIntegerField(_("without an answer"), default=0)
    unknown = models.BigIntegerField(_("not comparable"), default=0)
    dropped = models.BigIntegerField(_("dropped"), default=0)
    unfit = models.BigIntegerField(_("too large"), default=0)
    base_ms = models.JSONField(default=dict)
    shadow_ms = models.JSONField(default=dict)
    hours = models.JSONField(default=dict)
    busy_until = models.DateTimeField(null=True, blank=True)  # a worker sends copies

    class Meta:
        db_table = "app_shadow"
        verbose_name = _("shadow of an application")
        verbose_name_plural = _("shadows of applications")
        indexes = [models.Index(fields=["app", "-id"], name="app_shadow_newest")]

    def __str__(self) -> str:
        return f"{self.app} > {self.model_name}"

    @property
    def compared(self) -> int:
        """Return how many copies were sent."""
        return self.equal + self.different + self.status + self.failed + self.unknown


class ShadowPair(models.Model):
    """A request to which an application and its shadow have answered differently; a sample of them is kept, masked as
    records are. `at_path` is where in the answers the first difference is. Written only through apps.shadows.
    """

    stored_by = "r.user_id"  # kernel.stored

    class Kind(models.TextChoices):
        DIFFERENT = "different", _("different answer")
        STATUS = "status", _("different status")
        FAILED = "failed", _("no answer")

    shadow = models.ForeignKey(Shadow, on_delete=models.CASCADE, related_name="pairs")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField(_("time"), auto_now_add=True)
    request_id = models.CharField(_("request id"), max_length=64)
    path = models.CharField(_("path"), max_length=200)
    kind = models.CharField(_("difference"), max_length=10, choices=Kind.choices)
    at_path = models.CharField(max_length=200, blank=True)
    base_status = models.PositiveSmallIntegerField(_("status"))
    shadow_status = models.PositiveSmallIntegerField(_("status"), null=True)
    base_ms = models.FloatField(_("duration (ms)"))
    shadow_ms = models.FloatField(_("duration (ms)"), null=True)
    input = models.TextField(_("input"), blank=True)
    base_output = models.TextField(_("output"), blank=True)
    shadow_output = models.TextField(_("output"), blank=True)

    class Meta:
        db_table = "app_shadow_pair"
        verbose_name = _("different pair of answers")
        verbose_name_plural = _("different pairs of answers")
        indexes = [
            models.Index(fields=["shadow", "-id"], name="app_shadow_pair_newest"),
            models.Index(fields=["at"], name="app_shadow_pair_by_age"),
        ]

    def __str__(self) -> str:
        return self.request_id
