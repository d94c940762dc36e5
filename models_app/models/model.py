"""Model. Written only through models_app.lifecycle.

Model:
    creating      --complete--> ready
    creating      --fail-->     error
    ready, error  --erase-->    deleting     (files are removed first, then the row)

In `creating`, `copied` is true once its files are copied, or listed where they stay in a bucket; `run_name` is the run
that checks whether it loads. `requirements` are the packages that it is loaded with, `packages` is the environment that
has them (packages.py).
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel import masking
from kernel.messages import ReasonField
from kernel.models import Lifecycle, refused
from kernel.titles import Titled
from kernel.transitions import ConcurrentTransitionMixin
from kernel.trash import Trashable

LANGUAGE_MODELS = ("transformers", "gguf")  # the formats, as the load check names them


class State(models.TextChoices):
    CREATING = "creating", _("creating")
    READY = "ready", _("ready")
    ERROR = "error", _("failed")
    DELETING = "deleting", _("deleting")


class Model(ConcurrentTransitionMixin, Trashable, Titled, Lifecycle):
    """A trained model of one user: files, proven to load. `size` in bytes.

    The files of an `external` one stay in the bucket of `src`: they are listed in its manifest, and fetched for runs.
    """

    stored_by = "r.user_id"  # kernel.stored
    untitled = "model"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="models", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.PROTECT, related_name="models", verbose_name=_("tenant")
    )
    name = models.CharField(_("name"), max_length=50)
    src = models.CharField(_("source"), max_length=500)
    size = models.BigIntegerField(_("size"))
    state = FSMField(_("state"), default=State.CREATING, choices=State.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    reserved = models.BooleanField(_("space reserved"), default=True)
    copied = models.BooleanField(_("copied"), default=False)
    run_name = models.CharField(_("run"), max_length=64, blank=True)
    run_ordered = models.DateTimeField(_("check started"), null=True, blank=True)
    format = models.CharField(_("format"), max_length=20, blank=True)
    signature = models.JSONField(_("inputs and outputs"), default=dict, blank=True)
    checksums = models.JSONField(_("checksums"), default=dict, blank=True)
    lineage = models.JSONField(_("lineage"), default=dict, blank=True)
    notes = models.TextField(_("notes"), blank=True)
    requirements = models.TextField(_("packages"), blank=True, default="", db_default="")
    packages = models.CharField(_("environment of packages"), max_length=32, blank=True, default="", db_default="")
    environment = models.CharField(  # torch-cpu@3: a named environment, in place of `requirements`
        _("named environment"), max_length=80, blank=True, default="", db_default="")  # fmt: skip
    environment_version = models.ForeignKey(
        "jobs.EnvironmentVersion", on_delete=models.SET_NULL, related_name="+", null=True, blank=True)  # fmt: skip
    external = models.BooleanField(_("external"), default=False, db_default=False)  # its files stay in the bucket
    created = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "model"
        verbose_name = _("model")
        verbose_name_plural = _("models")
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="model_name_once_per_user"),
            models.CheckConstraint(condition=Q(state__in=State.values), name="model_state"),
            models.CheckConstraint(condition=Q(size__gte=0), name="model_size"),
        ]
        indexes = [
            models.Index(fields=["state", "id"], name="model_unsteady"),
            models.Index(fields=["user", "-id"], name="model_newest"),
            models.Index(fields=["trashed"], name="model_trash", condition=Q(trashed__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @property
    def is_language_model(self) -> bool:
        """Return whether its applications speak the protocol of OpenAI's API (apps/serving/chat.py)."""
        return self.format in LANGUAGE_MODELS

    @property
    def shown_requirements(self) -> str:
        """Return the packages that it is loaded with, without passwords in addresses."""
        return masking.without_credentials(self.requirements)

    @transition(
        field=state,
        source=State.CREATING,
        target=State.READY,
        custom=refused("the model is %(state)s; only a model that is being created can become ready"),
    )
    def complete(self, *, by, reason=""):
        """creating > ready."""

    @transition(
        field=state,
        source=State.CREATING,
        target=State.ERROR,
        custom=refused("the model is %(state)s; only a creation in progress can be aborted"),
    )
    def fail(self, *, by, reason="", outcome=""):
        """creating > error."""
        self.reason = reason

    @transition(
        field=state,
        source=[State.READY, State.ERROR],
        target=State.DELETING,
        custom=refused("the model is still being created; wait until it is ready or has failed before you delete it"),
    )
    def erase(self, *, by, reason=""):
        """ready, error > deleting."""
