"""RegisteredModel, ModelVersion and Alias. Written only through models_app.registry.

A version has a Model where its files are on this platform: the files, the check that they load, and the lineage are the
Model's. Files that do not load here are a version all the same, which cannot be deployed here. A version of files
elsewhere has no Model: it is READY and cannot be deployed.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from kernel.messages import Message
from kernel.titles import Titled

from .model import Model, State

MAX_NAME = 256
MAX_ALIAS = 255


class Stage(models.TextChoices):
    NONE = "None", _("None")
    STAGING = "Staging", _("Staging")
    PRODUCTION = "Production", _("Production")
    ARCHIVED = "Archived", _("Archived")


class Status(models.TextChoices):
    """The status of a version, as MLflow names it."""

    PENDING = "PENDING_REGISTRATION", _("creating")
    READY = "READY", _("ready")
    FAILED = "FAILED_REGISTRATION", _("failed")


class RegisteredModel(Titled):
    """A name of the registry, under which a user keeps the versions of a model. `last` is the highest number so far:
    the number of a deleted version is not used again.
    """

    stored_by = "r.user_id"  # kernel.stored
    untitled = "model"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="registered", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=MAX_NAME)
    description = models.TextField(_("description"), blank=True, default="", db_default="")
    tags = models.JSONField(_("tags"), default=dict, blank=True, db_default={})
    last = models.PositiveIntegerField(_("highest version"), default=0, db_default=0)
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())
    updated = models.DateTimeField(_("changed"), auto_now=True, db_default=Now())

    reading = None  # how a visitor reads another user's: see accounts.sharing.access

    class Meta:
        db_table = "registered_model"
        verbose_name = _("registered model")
        verbose_name_plural = _("registered models")
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="registered_model_name_once_per_user")]
        indexes = [
            models.Index(fields=["user", "-updated"], name="registered_model_newest"),
            GinIndex(fields=["tags"], name="registered_model_tags"),
        ]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @property
    def history_owner(self) -> str:
        return self.user.username

    @property
    def history_name(self) -> str:
        return self.name


class ModelVersion(models.Model):
    """One version of a registered model. `source` is where its files were when it was made, as the caller said it.

    `job` is the run that made it, `run_id` what the caller called the run. `model` has its files; `owns_model` where
    the Model was made for the version and is deleted with it.
    """

    stored_by = "(SELECT user_id FROM registered_model WHERE id = r.registered_id)"  # kernel.stored

    registered = models.ForeignKey(
        RegisteredModel, on_delete=models.CASCADE, related_name="versions", verbose_name=_("registered model")
    )
    number = models.PositiveIntegerField(_("version"))
    source = models.CharField(_("source"), max_length=2000, blank=True, default="", db_default="")
    job = models.ForeignKey(
        "jobs.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="versions", verbose_name=_("run")
    )
    run_id = models.CharField(_("run id"), max_length=64, blank=True, default="", db_default="")
    run_link = models.CharField(_("link to the run"), max_length=2000, blank=True, default="", db_default="")
    logged_model = models.CharField(_("logged model"), max_length=64, blank=True, default="", db_default="")
    model = models.ForeignKey(
        Model, on_delete=models.PROTECT, null=True, blank=True, related_name="versions", verbose_name=_("model")
    )
    owns_model = models.BooleanField(default=False, db_default=False)
    stage = models.CharField(
        _("stage"), max_length=10, choices=Stage.choices, default=Stage.NONE, db_default=Stage.NONE.value
    )
    description = models.TextField(_("description"), blank=True, default="", db_default="")
    tags = models.JSONField(_("tags"), default=dict, blank=True, db_default={})
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())
    updated = models.DateTimeField(_("changed"), auto_now=True, db_default=Now())

    class Meta:
        db_table = "model_version"
        verbose_name = _("model version")
        verbose_name_plural = _("model versions")
        constraints = [
            models.UniqueConstraint(fields=["registered", "number"], name="model_version_number_once"),
            models.CheckConstraint(condition=models.Q(stage__in=Stage.values), name="model_version_stage"),
        ]
        indexes = [
            models.Index(fields=["registered", "stage", "-number"], name="model_version_latest"),
            models.Index(fields=["run_id"], name="model_version_of_run", condition=~models.Q(run_id="")),
            GinIndex(fields=["tags"], name="model_version_tags"),
        ]

    def __str__(self) -> str:
        return f"{self.registered}/{self.number}"

    @property
    def status(self) -> str:
        """Return the status: READY once the files are here and the check has ended, whether they load here or not, and
        for files elsewhere.
        """
        if self.model is None or self.model.state == State.READY:
            return Status.READY
        if self.model.state == State.CREATING:
            return Status.PENDING
        return Status.READY if self.model.copied else Status.FAILED

    @property
    def status_message(self) -> str:
        """Return why the version has failed, or cannot be deployed here; empty otherwise."""
        if self.model is None or self.model.state in (State.READY, State.CREATING):
            return ""
        reason = self.model.reason
        return Message("cannot be deployed here: %(reason)s", reason=reason) if self.model.copied else reason


class Alias(models.Model):
    """A name for one version of a registered model, which can be moved to another."""

    registered = models.ForeignKey(
        RegisteredModel, on_delete=models.CASCADE, related_name="aliases", verbose_name=_("registered model")
    )
    name = models.CharField(_("name"), max_length=MAX_ALIAS)
    version = models.ForeignKey(
        ModelVersion, on_delete=models.CASCADE, related_name="aliases", verbose_name=_("version")
    )
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())
    updated = models.DateTimeField(_("changed"), auto_now=True, db_default=Now())

    class Meta:
        db_table = "model_alias"
        verbose_name = _("alias")
        verbose_name_plural = _("aliases")
        constraints = [models.UniqueConstraint(fields=["registered", "name"], name="model_alias_name_once")]

    def __str__(self) -> str:
        return f"{self.registered}@{self.name}"

    @property
    def uri(self) -> str:
        """Return how MLflow's clients name it."""
        return f"models:/{self.registered.name}@{self.name}"
