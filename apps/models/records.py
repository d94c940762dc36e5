"""The records of an application's requests and answers, and what callers have said of the answers."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Value
from django.utils.translation import gettext_lazy as _

from kernel.messages import ReasonField

from .application import Application


class Recording(models.Model):
    """How the requests of an application are recorded. Written only through apps.records.

    `share` is from 0 to 1, `record_kib` the most that is kept of each body, `most_mib` of all records together.
    `stored` are the bytes of the records, `dropped` how many were not stored, `problem` why the last of them were not.
    """

    app = models.OneToOneField(Application, on_delete=models.CASCADE, related_name="recording")
    on = models.BooleanField(_("recording"), default=False)
    share = models.FloatField(_("share of the requests"), default=1.0)
    days = models.PositiveSmallIntegerField(_("days"), default=30)
    mask = models.JSONField(_("masked fields"), default=list, db_default=Value([], models.JSONField()), blank=True)
    record_kib = models.PositiveSmallIntegerField(_("KiB per body"), default=16)
    most_mib = models.PositiveIntegerField(_("MiB of all records"), default=256)
    stored = models.BigIntegerField(_("bytes"), default=0)
    dropped = models.BigIntegerField(_("dropped"), default=0)
    problem = ReasonField(_("reason"), blank=True)

    class Meta:
        db_table = "app_recording"
        verbose_name = _("recording of an application")
        verbose_name_plural = _("recordings of applications")

    def __str__(self) -> str:
        return str(self.app)


class Record(models.Model):
    """One answered request. `arm` is "canary" or "base" while a canary was up. Written only through apps.records."""

    stored_by = "r.user_id"  # kernel.stored

    class Kept(models.TextChoices):
        """What is kept of a body."""

        ALL = "all", _("whole")
        CUT = "cut", _("cut off")
        WITHHELD = "withheld", _("withheld")
        BINARY = "binary", _("binary")
        NONE = "none", _("empty")

    app = models.ForeignKey(
        Application, on_delete=models.CASCADE, related_name="records", verbose_name=_("application")
    )
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    request_id = models.CharField(_("request id"), max_length=64)
    at = models.DateTimeField(_("time"))
    run_name = models.CharField(_("run"), max_length=64)
    model_name = models.CharField(_("model"), max_length=50)
    arm = models.CharField(_("canary"), max_length=10, blank=True, default="")
    caller = models.CharField(_("key"), max_length=50, blank=True, default="")
    path = models.CharField(_("path"), max_length=200)
    status = models.PositiveSmallIntegerField(_("status"))
    whole = models.BooleanField(_("answered to the end"), default=True)
    ms = models.FloatField(_("duration (ms)"))
    input = models.TextField(_("input"), blank=True)
    input_kept = models.CharField(max_length=10, choices=Kept.choices)
    input_type = models.CharField(max_length=100, blank=True)
    input_size = models.BigIntegerField(_("bytes"))
    output = models.TextField(_("output"), blank=True)
    output_kept = models.CharField(max_length=10, choices=Kept.choices)
    output_type = models.CharField(max_length=100, blank=True)
    output_size = models.BigIntegerField(_("bytes"))
    size = models.PositiveIntegerField()  # bytes that count in Recording.stored

    class Meta:
        db_table = "app_record"
        verbose_name = _("record")
        verbose_name_plural = _("records")
        indexes = [
            models.Index(fields=["app", "-at", "-id"], name="app_record_newest"),
            models.Index(fields=["app", "request_id"], name="app_record_by_id"),
        ]

    def __str__(self) -> str:
        return self.request_id

    @property
    def took(self) -> str:
        """Return its duration for a page."""
        return f"{self.ms:.1f} ms"


class Feedback(models.Model):
    """What a caller has said of the answer to a request. Written only through apps.records."""

    stored_by = "r.user_id"  # kernel.stored

    app = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="feedback")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    request_id = models.CharField(_("request id"), max_length=64)
    at = models.DateTimeField(_("time"), auto_now_add=True)
    caller = models.CharField(_("key"), max_length=50, blank=True, default="")
    value = models.JSONField(_("value"))  # a number, a truth value or a text
    comment = models.TextField(_("comment"), blank=True, default="")

    class Meta:
        db_table = "app_feedback"
        verbose_name = _("feedback")
        verbose_name_plural = _("feedback")
        indexes = [
            models.Index(fields=["app", "request_id"], name="app_feedback_by_id"),
            models.Index(fields=["app", "at"], name="app_feedback_by_age"),
        ]

    def __str__(self) -> str:
        return self.request_id
