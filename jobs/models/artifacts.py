"""ArtifactSpace: the disk space of a run's artifacts, written only through jobs.artifacts.space. LoggedModel and
ModelUse: the models of MLflow 3, written only through tracking.mlflow.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from .job import Job


class ArtifactSpace(models.Model):
    """How many bytes of artifacts a run has, and how many of its tenant's disk are reserved for them.

    A run without artifacts has no row. What a job's script writes to its working directory itself is not counted.
    """

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="artifact_space")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", verbose_name=_("user")
    )
    tenant = models.ForeignKey("resources.Tenant", on_delete=models.PROTECT, related_name="+", verbose_name=_("tenant"))
    stored = models.BigIntegerField(_("bytes"), default=0, db_default=0)
    reserved = models.BigIntegerField(_("reserved bytes"), default=0, db_default=0)

    class Meta:
        db_table = "artifact_space"
        verbose_name = _("space of artifacts")
        verbose_name_plural = _("space of artifacts")
        constraints = [
            models.CheckConstraint(condition=Q(stored__gte=0) & Q(reserved__gte=0), name="artifact_space_not_negative")
        ]

    def __str__(self) -> str:
        return f"{self.job_id}: {self.stored}"


def new_key() -> str:
    return f"m-{uuid.uuid4().hex}"


class LoggedModel(models.Model):
    """A model that a program has logged with MLflow 3. Its files are in the output of `job`: the run that has logged
    it, or, where there was none (`has_source` is false), a run that was created for it.

    `metrics` has the last report of each: {"accuracy": {"value", "timestamp", "step", "run_id", …}}.
    """

    stored_by = "r.user_id"  # kernel.stored

    class Status(models.TextChoices):
        PENDING = "LOGGED_MODEL_PENDING", _("uploading")
        READY = "LOGGED_MODEL_READY", _("ready")
        FAILED = "LOGGED_MODEL_UPLOAD_FAILED", _("upload failed")

    key = models.CharField(_("id"), max_length=34, unique=True, default=new_key)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="logged_models", verbose_name=_("user")
    )
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="logged_models", verbose_name=_("run"))
    has_source = models.BooleanField(default=True, db_default=True)
    name = models.CharField(_("name"), max_length=500)
    model_type = models.CharField(_("type"), max_length=500, blank=True, default="", db_default="")
    status = models.CharField(
        _("status"), max_length=30, choices=Status.choices, default=Status.PENDING, db_default=Status.PENDING.value
    )
    tags = models.JSONField(_("tags"), default=dict, blank=True, db_default={})
    params = models.JSONField(_("parameters"), default=dict, blank=True, db_default={})
    metrics = models.JSONField(_("metrics"), default=dict, blank=True, db_default={})
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())
    updated = models.DateTimeField(_("changed"), auto_now=True, db_default=Now())

    class Meta:
        db_table = "logged_model"
        verbose_name = _("logged model")
        verbose_name_plural = _("logged models")
        indexes = [models.Index(fields=["user", "-created"], name="logged_model_newest")]

    def __str__(self) -> str:
        return self.key


class ModelUse(models.Model):
    """A model that a run has read or made."""

    class Kind(models.TextChoices):
        INPUT = "input", _("input")
        OUTPUT = "output", _("output")

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="model_uses", db_index=False)
    model = models.ForeignKey(LoggedModel, on_delete=models.CASCADE, related_name="uses", verbose_name=_("model"))
    kind = models.CharField(max_length=10, choices=Kind.choices)
    step = models.BigIntegerField(_("step"), default=0, db_default=0)

    class Meta:
        db_table = "model_use"
        verbose_name = _("model of a run")
        verbose_name_plural = _("models of runs")
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["job", "model", "kind"], name="model_use_once")]

    def __str__(self) -> str:
        return f"{self.job_id} {self.kind} {self.model_id}"
