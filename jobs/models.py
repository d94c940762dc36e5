"""Job and Metrics. Written only through jobs.lifecycle and jobs.metrics.recording.

Job:
    creating          --start-->  running
    running           --finish--> finished
    creating, running --fail-->   error
    finished, error   --erase-->  deleting     (files go first, then the row)

An attempt is one run of the script. `run_name` is its name at the runner and stays until the run is cleaned up, also
after the job has ended: the resources are released only then. `run_started` distinguishes a run that was lost from one
that never started.
"""

from __future__ import annotations

import secrets
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django_fsm import ConcurrentTransitionMixin, FSMField, transition

import runners
from kernel.messages import ReasonField
from kernel.models import Lifecycle, refused
from resources.models import Network


class State(models.TextChoices):
    CREATING = "creating", _("queued")
    RUNNING = "running", _("running")
    FINISHED = "finished", _("finished")
    ERROR = "error", _("failed")
    DELETING = "deleting", _("deleting")


ENDED = (State.FINISHED, State.ERROR)
# States that only pages tell apart: a queued job is starting once its resources are reserved; an error may be a cancel.
SHOWN_ONLY = {"starting": _("starting"), "cancelled": _("cancelled")}


class Runtime(models.TextChoices):
    PYTHON = "python", "Python"
    TORCH = "torch", "PyTorch"
    TF = "tf", "TensorFlow"


def new_nonce() -> str:
    return secrets.token_hex(16)


class Job(ConcurrentTransitionMixin, Lifecycle):
    """One training script of one user, run until it ends. cpu in cores, gpu in devices, ram in MiB, per worker."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.PROTECT, related_name="jobs", verbose_name=_("tenant")
    )
    name = models.CharField(_("name"), max_length=50)
    runtime = models.CharField(_("runtime"), max_length=10, choices=Runtime.choices, default=Runtime.PYTHON)
    entry = models.CharField(_("script"), max_length=200)
    gpu = models.PositiveSmallIntegerField(_("GPU"), default=0)
    cpu = models.FloatField(_("CPU"), default=1)
    ram = models.PositiveIntegerField(_("Memory (MiB)"), default=512)
    workers = models.PositiveSmallIntegerField(_("workers"), default=1)
    datasets = models.JSONField(_("datasets"), default=list, blank=True)
    args = models.JSONField(_("arguments"), default=list, blank=True)
    env = models.JSONField(_("environment"), default=dict, blank=True)
    retries = models.PositiveSmallIntegerField(_("retries"), default=0)
    network = models.CharField(
        _("network"), max_length=10, choices=Network.choices, blank=True, default="", db_default=""
    )
    state = FSMField(_("state"), default=State.CREATING, choices=State.choices, protected=True)
    progress = models.PositiveSmallIntegerField(_("progress"), default=0)
    reason = ReasonField(_("reason"), blank=True)
    reserved = models.BooleanField(_("resources reserved"), default=False)
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=0)
    run_name = models.CharField(_("run"), max_length=64, blank=True)
    run_started = models.BooleanField(default=False)
    not_before = models.DateTimeField(_("not before"), null=True, blank=True)
    metrics_from = models.DateTimeField(null=True, blank=True)  # reports sent earlier were deleted
    metrics_until = models.DateTimeField(null=True, blank=True)  # reports sent from then on are rejected
    values_kept = models.PositiveBigIntegerField(default=0)  # rows of metrics and values
    metrics_notice = ReasonField(blank=True, default="")  # why reports were refused or are not stored
    nonce = models.CharField(max_length=32, default=new_nonce)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    started = models.DateTimeField(_("started"), null=True, blank=True)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        db_table = "job"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="job_name_once_per_user"),
            models.CheckConstraint(condition=Q(state__in=State.values), name="job_state"),
            models.CheckConstraint(condition=Q(progress__lte=100), name="job_progress"),
        ]
        indexes = [
            models.Index(fields=["state", "id"], name="job_unsteady"),
            models.Index(fields=["user", "-id"], name="job_newest"),
            models.Index(fields=["id"], name="job_run_left", condition=~Q(run_name="")),
        ]

    @property
    def network_policy(self) -> str:
        """Return what its runs may reach: what it asks for, within what its tenant allows now."""
        return runners.narrowest(self.tenant.network_policy, self.network)

    @property
    def needs(self) -> dict:
        """Return what all workers together use of the tenant: gpu, cpu, ram."""
        return {"gpu": self.gpu * self.workers, "cpu": self.cpu * self.workers, "ram": self.ram * self.workers}

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @property
    def shown_state(self) -> str:
        if self.state == State.CREATING and self.reserved:
            return "starting"
        return "cancelled" if self.state == State.ERROR and self.reason.startswith("cancelled") else self.state

    @property
    def shown_state_word(self) -> str:
        return str(SHOWN_ONLY.get(self.shown_state, self.get_state_display()))

    @property
    def has_ended(self) -> bool:
        return self.state in (*ENDED, State.DELETING)

    @property
    def is_live(self) -> bool:
        """Return whether it is running, or about to be marked so: its run is ordered and may report already."""
        return self.state == State.RUNNING or (self.state == State.CREATING and bool(self.run_name))

    def ran_at(self, moment: datetime) -> bool:
        """Return whether a report sent at that moment was sent while this job ran; it may arrive after the end."""
        return moment >= (self.metrics_from or self.created) and self.ran_and_had_not_ended_at(moment)

    def ran_and_had_not_ended_at(self, moment: datetime) -> bool:
        """Return the same without looking at the job's creation."""
        return self.is_live or (self.state in ENDED and self.attempt > 0 and moment < self.ended)

    def attempt_at(self, moment: datetime) -> int:
        """Return the attempt that ran at that moment: the current one, or the previous one before `not_before`."""
        early = self.attempt > 1 and self.not_before is not None and moment < self.not_before
        return self.attempt - 1 if early else self.attempt

    @property
    def ran_for(self) -> float | None:
        """Return the seconds from the start to the end, or until now; None before the start."""
        return ((self.ended or timezone.now()) - self.started).total_seconds() if self.started else None

    @property
    def left_for(self) -> float | None:
        """Return the estimated seconds left at the pace so far; None while it cannot be estimated."""
        if self.state != State.RUNNING or not 0 < self.progress < 100 or self.attempt > 1:
            return None
        return self.ran_for * (100 - self.progress) / self.progress

    @transition(
        field=state,
        source=State.CREATING,
        target=State.RUNNING,
        custom=refused("the job is %(state)s; only a job in the queue can start"),
    )
    def start(self, *, by, reason=""):
        """Move from creating to running."""

    @transition(
        field=state,
        source=State.RUNNING,
        target=State.FINISHED,
        custom=refused("the job is %(state)s; only a running job can finish"),
    )
    def finish(self, *, by, reason=""):
        """Move from running to finished."""
        self.progress = 100

    @transition(
        field=state,
        source=[State.CREATING, State.RUNNING],
        target=State.ERROR,
        custom=refused("the job has already ended"),
    )
    def fail(self, *, by, reason=""):
        """Move from creating or running to error."""
        self.reason = reason

    @transition(
        field=state,
        source=list(ENDED),
        target=State.DELETING,
        custom=refused("the job has not ended; cancel it before you delete it"),
    )
    def erase(self, *, by, reason=""):
        """Move from finished or error to deleting."""


class Metrics(models.Model):
    """One report of a job's script. `seq` orders a job's rows without gaps; `msg_id` makes repeats count once."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metrics", verbose_name=_("job"))
    seq = models.PositiveIntegerField(_("number"))
    epoch = models.BigIntegerField(_("epoch"))
    accuracy = models.FloatField(_("accuracy"))
    loss = models.FloatField(_("loss"))
    progress = models.SmallIntegerField(_("progress"))
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=1)
    msg_id = models.CharField(_("message"), max_length=200)
    at = models.DateTimeField(_("at"), auto_now_add=True)

    class Meta:
        db_table = "metrics"
        verbose_name = _("metrics")
        verbose_name_plural = _("metrics")
        ordering = ["seq"]
        constraints = [
            models.UniqueConstraint(fields=["job", "seq"], name="metrics_seq_once"),
            models.UniqueConstraint(fields=["job", "msg_id"], name="metrics_message_once"),
            models.CheckConstraint(condition=Q(epoch__gte=0), name="metrics_epoch"),
            models.CheckConstraint(condition=Q(progress__gte=-1, progress__lte=100), name="metrics_progress"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} #{self.seq}"


class Value(models.Model):
    """One number under a name that the script chose, at a step. A job's rows are ordered by their keys."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="values", verbose_name=_("job"))
    name = models.CharField(_("name"), max_length=100)
    step = models.BigIntegerField(_("step"))
    value = models.FloatField(_("value"))
    at = models.DateTimeField(_("at"))
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=1)
    msg_id = models.CharField(_("message"), max_length=200)

    class Meta:
        db_table = "metric_value"
        verbose_name = _("value")
        verbose_name_plural = _("values")
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["job", "msg_id", "name"], name="value_message_once"),
            models.CheckConstraint(condition=Q(step__gte=0), name="value_step"),
        ]
        indexes = [models.Index(fields=["job", "name", "id"], name="value_series")]

    def __str__(self) -> str:
        return f"{self.job_id} {self.name} #{self.step}"
