"""The runs of an application: the record of each, a second one while it moves, more of them as replicas."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel.messages import ReasonField
from kernel.models import refused
from kernel.transitions import ConcurrentTransitionMixin

from .application import Application

MOVED_ON = refused("the application's move has changed meanwhile")
CHANGED = refused("the replica has changed meanwhile")


class AppRun(models.Model):
    """A run of an application, with when it was up and how it ended. Written only through apps.runs, `tokens`
    through apps.key_tokens, and `records` through apps.records.
    """

    class Outcome(models.TextChoices):
        FAILED = "failed", _("failed")
        REPLACED = "replaced", _("replaced")
        RESTARTED = "restarted", _("restarted")
        STOPPED = "stopped", _("stopped")
        SCALED_IN = "scaled_in", _("no longer needed")

    app = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="runs", verbose_name=_("application"))
    name = models.CharField(_("run"), max_length=64)
    model_name = models.CharField(_("model"), max_length=50)
    ordered = models.DateTimeField(_("ordered"))
    ready = models.DateTimeField(_("ready since"), null=True, blank=True)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)
    outcome = models.CharField(_("outcome"), max_length=10, choices=Outcome.choices, blank=True)
    reason = ReasonField(_("reason"), blank=True)
    # Of a language model, what has been moved to the keys' days of what its process counts. None: nothing is to come.
    tokens = models.JSONField(null=True, blank=True)
    # How far the records that its process has written are stored (apps.records). None: nothing is to come.
    records = models.JSONField(null=True, blank=True)

    class Meta:
        db_table = "app_run"
        verbose_name = _("run of an application")
        verbose_name_plural = _("runs of applications")
        constraints = [models.UniqueConstraint(fields=["app", "name"], name="app_run_once")]
        indexes = [
            models.Index(fields=["app", "-id"], name="app_run_newest"),
            models.Index(fields=["id"], condition=models.Q(tokens__isnull=False), name="app_run_counting"),
            models.Index(fields=["id"], condition=models.Q(records__isnull=False), name="app_run_recording"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def uptime_s(self) -> float:
        """Return for how many seconds it was up, until now if it still is."""
        return ((self.ended or timezone.now()) - self.ready).total_seconds() if self.ready else 0.0


class RolloutPhase(models.TextChoices):
    WAITING = "waiting", _("waiting for resources")
    STARTING = "starting", _("starting")
    CANARY = "canary", _("canary")
    SHADOW = "shadow", _("shadow")
    RESTARTING = "restarting", _("restarting")
    ENDING = "ending", _("stopping the other run")
    FAILED = "failed", _("failed")


class ReplicaPhase(models.TextChoices):
    WAITING = "waiting", _("waiting")
    STARTING = "starting", _("starting")
    READY = "ready", _("ready")
    ENDING = "ending", _("stopping")


class SecondRun(ConcurrentTransitionMixin, models.Model):
    """A run of an application beside its own one, with resources of its own: a rollout's or a replica's."""

    keeps_own_history = True  # the application's history and its runs say it all

    run_name = models.CharField(_("run"), max_length=64, blank=True)
    reserved = models.BooleanField(_("resources reserved"), default=False)
    reason = ReasonField(_("reason"), blank=True)
    ordered = models.DateTimeField(_("run ordered"), null=True, blank=True)
    not_before = models.DateTimeField(_("not before"), null=True, blank=True)
    created = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        abstract = True


class Rollout(SecondRun):
    """The move of an application to another model, or to a new process of the same one. Written only through
    apps.rollouts, under the application's lock.

    waiting     there is no room for a second run; `not_before` is the next attempt
    starting    `run_name` is the new run, which is not up yet
    canary      the new run is up, and a share of the requests goes to it (apps.canaries)
    shadow      the new run is up, and a share of the requests is copied to it (apps.shadows)
    restarting  the new run starts when the old one, `run_name`, has ended: the owner allows that
    ending      requests go to the run that they should; `run_name` is the other one, which is being stopped
    failed      `reason` says why; the application serves what it served before

    waiting, failed                  --wait-->     waiting
    waiting, failed, canary, shadow  --order-->    starting
    waiting, failed                  --restart-->  restarting
    starting, shadow                 --share-->    canary
    starting                         --watch-->    shadow
    starting, canary, shadow         --end-->      ending
    ending                           --fail-->     failed
    waiting, restarting, ending and failed end with the row.

    `by` is who has asked for it; it is empty when the alias has moved. With a `shadow` no request goes to the new run
    until that is promoted.
    """

    Phase = RolloutPhase
    SECOND_RUN = (Phase.STARTING, Phase.CANARY, Phase.SHADOW)  # beside the run that serves

    app = models.OneToOneField(
        Application, on_delete=models.CASCADE, related_name="rollout", verbose_name=_("application")
    )
    model = models.ForeignKey(
        "models_app.Model", on_delete=models.PROTECT, related_name="rollouts", verbose_name=_("model")
    )
    phase = FSMField(_("phase"), max_length=10, default=Phase.WAITING, choices=Phase.choices, protected=True)
    slot = models.PositiveSmallIntegerField(null=True, blank=True)  # which files its run writes
    may_restart = models.BooleanField(_("restart if there is no room for two"), default=False, db_default=False)
    by = models.CharField(_("requested by"), max_length=80, blank=True, default="", db_default="")
    address = models.CharField(_("address"), max_length=300, blank=True, default="", db_default="")  # of a canary
    percent = models.PositiveSmallIntegerField(_("percent of the requests"), null=True, blank=True)
    proposed = models.PositiveSmallIntegerField(_("percent to be approved"), null=True, blank=True)  # apps.approvals
    step = models.PositiveSmallIntegerField(default=0, db_default=0)  # of the plan; the last that was begun
    step_since = models.DateTimeField(null=True, blank=True)
    shadow = models.ForeignKey("apps.Shadow", on_delete=models.SET_NULL, related_name="+", null=True, blank=True)
    base_of = models.DateTimeField(null=True, blank=True)  # the `step_since` that began with these counts of the run
    base_requests = models.BigIntegerField(default=0, db_default=0)
    base_failures = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "app_rollout"
        verbose_name = _("rollout")
        verbose_name_plural = _("rollouts")
        constraints = [models.CheckConstraint(condition=Q(phase__in=RolloutPhase.values), name="app_rollout_phase")]

    def __str__(self) -> str:
        return f"{self.app} > {self.model}"

    @transition(field=phase, source=[Phase.WAITING, Phase.FAILED], target=Phase.WAITING, custom=MOVED_ON)
    def wait(self, until: datetime, *, reason: str):
        """waiting, failed > waiting."""
        self.not_before, self.reason = until, reason

    @transition(
        field=phase, source=[Phase.WAITING, Phase.FAILED, Phase.CANARY, Phase.SHADOW], target=Phase.STARTING,
        custom=MOVED_ON,
    )  # fmt: skip
    def order(self):
        """waiting, failed, canary, shadow > starting."""
        self.reason, self.address = "", ""

    @transition(field=phase, source=[Phase.WAITING, Phase.FAILED], target=Phase.RESTARTING, custom=MOVED_ON)
    def restart(self, run_name: str):
        """waiting, failed > restarting."""
        self.run_name = run_name

    @transition(field=phase, source=Phase.STARTING, target=Phase.SHADOW, custom=MOVED_ON)
    def watch(self, address: str):
        """starting > shadow."""
        self.address = address

    @transition(field=phase, source=[Phase.STARTING, Phase.SHADOW], target=Phase.CANARY, custom=MOVED_ON)
    def share(self, address: str):
        """starting, shadow > canary."""
        self.address, self.step_since = address, timezone.now()
        self.base_of, self.base_requests, self.base_failures = self.step_since, 0, 0

    @transition(field=phase, source=SECOND_RUN, target=Phase.ENDING, custom=MOVED_ON)
    def end(self, until: datetime | None):
        """starting, canary, shadow > ending."""
        self.percent, self.proposed, self.address, self.not_before = None, None, "", until

    @transition(field=phase, source=Phase.ENDING, target=Phase.FAILED, custom=MOVED_ON)
    def fail(self):
        """ending > failed."""
        self.run_name = ""


class Replica(SecondRun):
    """One more run of an application that has several. Written only through apps.replicas, under the application's
    lock.

    waiting   there is no room for it, or its run has ended; `not_before` is the next attempt, `reason` says why
    starting  `run_name` is its run, which is not up yet
    ready     requests go to it, too
    ending    no request goes to it any more; it is removed once its run has answered what it has and is gone

    waiting, starting, ready  --wait-->   waiting
    waiting                   --order-->  starting
    starting                  --up-->     ready
    waiting, starting, ready  --drain-->  ending
    """

    Phase = ReplicaPhase

    app = models.ForeignKey(
        Application, on_delete=models.CASCADE, related_name="replicas", verbose_name=_("application")
    )
    phase = FSMField(_("phase"), max_length=10, default=Phase.WAITING, choices=Phase.choices, protected=True)
    slot = models.PositiveSmallIntegerField()  # which files its run writes
    generation = models.PositiveIntegerField()
    address = models.CharField(_("address"), max_length=300, blank=True)
    ready_since = models.DateTimeField(_("ready since"), null=True, blank=True)
    failures = models.PositiveSmallIntegerField(_("failures"), default=0)

    class Meta:
        db_table = "app_replica"
        verbose_name = _("replica")
        verbose_name_plural = _("replicas")
        constraints = [
            models.UniqueConstraint(fields=["app", "slot"], name="app_replica_slot_once"),
            models.CheckConstraint(condition=Q(phase__in=ReplicaPhase.values), name="app_replica_phase"),
        ]

    def __str__(self) -> str:
        return f"{self.app} #{self.slot}"

    @transition(field=phase, source=[Phase.WAITING, Phase.STARTING, Phase.READY], target=Phase.WAITING, custom=CHANGED)
    def wait(self, until: datetime, *, reason: str):
        """waiting, starting, ready > waiting."""
        self.run_name, self.address, self.ready_since = "", "", None
        self.not_before, self.reason = until, reason

    @transition(field=phase, source=Phase.WAITING, target=Phase.STARTING, custom=CHANGED)
    def order(self):
        """waiting > starting."""
        self.reason, self.address = "", ""

    @transition(field=phase, source=Phase.STARTING, target=Phase.READY, custom=CHANGED)
    def up(self, address: str):
        """starting > ready."""
        self.address, self.ready_since = address, timezone.now()

    @transition(field=phase, source=[Phase.WAITING, Phase.STARTING, Phase.READY], target=Phase.ENDING, custom=CHANGED)
    def drain(self, until: datetime):
        """waiting, starting, ready > ending."""
        self.not_before = until
