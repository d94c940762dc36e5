"""TrainingRun and ModelVersion. Written only through aiops.lifecycle.

TrainingRun:
    training  --complete--> completed    (a verified version serves)
    training  --fail-->     error        (why is in `reason`)

`run_name` is the run's name at the runner and stays until it is cleaned up, also after the end: the GPU is released
only then. `lease_until` is renewed by the trainer's progress; a training whose lease has expired is failed.
`job_end_sent` and `announced` say which of the messages about the end were sent, so each is sent once.

`tenant`: whose model it is, of a tenant with a model of its own; None for the platform's. Only its number is kept
(no constraint): a deleted tenant's are cleaned up afterwards, as their runs and files are (training.own_training).
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel.messages import ReasonField
from kernel.models import Lifecycle, refused
from kernel.transitions import ConcurrentTransitionMixin


class State(models.TextChoices):
    TRAINING = "training", _("running")
    COMPLETED = "completed", _("completed")
    ERROR = "error", _("failed")


ENDED = (State.COMPLETED, State.ERROR)


def _tenant() -> models.ForeignKey:
    return models.ForeignKey(
        "resources.Tenant", null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False,
        related_name="+", verbose_name=_("tenant"),
    )  # fmt: skip


class TrainingRun(ConcurrentTransitionMixin, Lifecycle):
    """One training of the log model. `uuid` is the request's (the watchlist's); times in seconds, percent 0..100."""

    uuid = models.UUIDField(_("request"), unique=True, default=uuid.uuid4)
    workloads = models.JSONField(_("workloads"), default=dict, blank=True)
    payload = models.JSONField(_("order"), default=dict, blank=True)
    by = models.CharField(_("who"), max_length=80, blank=True)
    tenant = _tenant()
    queued = models.BooleanField(_("queued"), default=False, db_default=False)  # until no other model is trained
    state = FSMField(_("state"), default=State.TRAINING, choices=State.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    owner = models.CharField(_("leased to"), max_length=120, blank=True)
    lease_until = models.DateTimeField(_("lease until"), null=True, blank=True)
    heartbeat = models.DateTimeField(_("last activity"), null=True, blank=True)
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=0)
    run_name = models.CharField(_("run"), max_length=100, blank=True)
    run_started = models.BooleanField(default=False)
    gpu = models.PositiveSmallIntegerField(_("GPU"), default=0)
    reserved = models.BooleanField(_("resources reserved"), default=False)
    stage = models.CharField(_("stage"), max_length=40, blank=True)
    percent = models.PositiveSmallIntegerField(_("progress"), default=0)
    elapsed = models.PositiveIntegerField(_("elapsed (s)"), default=0)
    eta = models.PositiveIntegerField(_("remaining (s)"), null=True, blank=True)
    epoch = models.PositiveIntegerField(_("epoch"), default=0)
    epochs = models.PositiveIntegerField(_("epochs"), default=0)
    loss = models.FloatField(_("loss"), null=True, blank=True)
    losses = models.JSONField(_("loss curve"), default=list, blank=True)
    lines = models.PositiveBigIntegerField(_("lines"), default=0)
    job_end_sent = models.BooleanField(default=False)
    announced = models.BooleanField(default=False)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        db_table = "aiops_training_run"
        verbose_name = _("training")
        verbose_name_plural = _("trainings")
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=State.values), name="aiops_training_run_state"),
            models.CheckConstraint(condition=Q(percent__lte=100), name="aiops_training_run_percent"),
            models.UniqueConstraint(
                fields=["tenant"], condition=Q(state="training"), name="aiops_one_training_of_a_tenant"
            ),
        ]
        indexes = [
            models.Index(fields=["id"], name="aiops_run_unsteady", condition=Q(state="training")),
            models.Index(fields=["id"], name="aiops_run_untold", condition=Q(announced=False) | ~Q(run_name="")),
        ]

    def __str__(self) -> str:
        return str(self.uuid)

    @property
    def history_owner(self) -> str:
        return "platform"

    @property
    def history_name(self) -> str:
        return str(self.uuid)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @transition(
        field=state,
        source=State.TRAINING,
        target=State.COMPLETED,
        custom=refused("the training has already ended"),
    )
    def complete(self, *, by, reason=""):
        """Move training > completed."""
        self.percent = 100

    @transition(
        field=state,
        source=State.TRAINING,
        target=State.ERROR,
        custom=refused("the training has already ended"),
    )
    def fail(self, *, by, reason="", outcome=""):
        """Move training > error."""
        self.reason = reason


class ModelVersion(models.Model):
    """A trained and verified model on disk. At most one of the platform, and of each tenant, serves. `manifest` is the
    model's own: data, scores, shape.
    """

    version = models.CharField(_("version"), max_length=64, unique=True)
    run = models.ForeignKey(
        TrainingRun,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="versions",
        verbose_name=_("training"),
    )
    tenant = _tenant()
    manifest = models.JSONField(_("manifest"), default=dict, blank=True)
    serving = models.BooleanField(_("serving"), default=False)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    served = models.DateTimeField(_("serving since"), null=True, blank=True)

    class Meta:
        db_table = "aiops_model_version"
        verbose_name = _("model version")
        verbose_name_plural = _("model versions")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["serving"], condition=Q(serving=True, tenant=None), name="aiops_one_version_serves"
            ),
            models.UniqueConstraint(
                fields=["tenant"], condition=Q(serving=True), name="aiops_one_version_serves_tenant"
            ),
        ]

    def __str__(self) -> str:
        return self.version

    @property
    def history_owner(self) -> str:
        return "platform"

    @property
    def history_name(self) -> str:
        return self.version
