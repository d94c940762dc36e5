"""Application. Written only through apps.lifecycle.

Application:
    creating      --up-->     ready
    ready         --lose-->   creating     (its run has ended: it is restarted after a pause)
    ready         --renew-->  creating     (its run was stopped on request, which is no failure: restarted at once)
    creating      --fail-->   error
    ready, error  --erase-->  deleting     (its run is stopped, then files and row are removed)

`alias` is what the application follows: when it names another version, the application moves to that (Rollout).
`failures` counts the runs that ended since the application was last up for a while. `port` belongs to the row until it
is removed.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django_fsm import ConcurrentTransitionMixin, FSMField, transition

from kernel.messages import ReasonField
from kernel.models import Lifecycle, refused

PORTS = range(31000, 50001)


class State(models.TextChoices):
    CREATING = "creating", _("starting")
    READY = "ready", _("ready")
    ERROR = "error", _("failed")
    DELETING = "deleting", _("deleting")


class Application(ConcurrentTransitionMixin, Lifecycle):
    """A model served behind the application gateway. cpu in cores, gpu in devices, ram in MiB."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="applications", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.PROTECT, related_name="applications", verbose_name=_("tenant")
    )
    model = models.ForeignKey(
        "models_app.Model", on_delete=models.PROTECT, related_name="served_by", verbose_name=_("model")
    )
    name = models.CharField(_("name"), max_length=50)
    gpu = models.PositiveSmallIntegerField(_("GPU"), default=0)
    cpu = models.FloatField(_("CPU"), default=1)
    ram = models.PositiveIntegerField(_("Memory (MiB)"), default=512)
    public = models.BooleanField(_("public"), default=False)
    port = models.PositiveIntegerField(_("port"), unique=True)
    state = FSMField(_("state"), default=State.CREATING, choices=State.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    reserved = models.BooleanField(_("resources reserved"), default=True)
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    failures = models.PositiveSmallIntegerField(_("failures"), default=0)
    run_name = models.CharField(_("run"), max_length=64, blank=True)
    ordered = models.DateTimeField(_("run ordered"), null=True, blank=True)
    not_before = models.DateTimeField(_("not before"), null=True, blank=True)
    ready_since = models.DateTimeField(_("ready since"), null=True, blank=True)
    address = models.CharField(_("address"), max_length=300, blank=True)
    slot = models.PositiveSmallIntegerField(default=0, db_default=0)  # 0 or 1: which files its run writes
    alias = models.ForeignKey(
        "models_app.Alias", on_delete=models.SET_NULL, null=True, blank=True, related_name="followers",
        verbose_name=_("alias"),
    )  # fmt: skip
    may_restart = models.BooleanField(_("restart if there is no room for two"), default=False, db_default=False)
    created = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "app_group"
        verbose_name = _("application")
        verbose_name_plural = _("applications")
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="application_name_once_per_user"),
            models.CheckConstraint(condition=Q(state__in=State.values), name="application_state"),
            models.CheckConstraint(
                condition=Q(port__gte=PORTS.start, port__lt=PORTS.stop), name="application_port_range"
            ),
        ]
        indexes = [
            models.Index(fields=["state", "id"], name="application_unsteady"),
            models.Index(fields=["user", "-id"], name="application_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @property
    def served_name(self) -> str:
        """Return the name of the model in the addresses of the Open Inference Protocol. What follows an alias keeps its
        own name there, since its models have different ones.
        """
        return self.name if self.alias_id else self.model.name

    @property
    def follows(self) -> str:
        """Return the URI of the alias that it follows; empty without one."""
        return self.alias.uri if self.alias_id else ""

    @transition(
        field=state,
        source=State.CREATING,
        target=State.READY,
        custom=refused("the application is %(state)s; only a starting application can become ready"),
    )
    def up(self, *, by, reason=""):
        """creating > ready."""
        self.reason = ""

    @transition(
        field=state,
        source=State.READY,
        target=State.CREATING,
        custom=refused("the application is %(state)s; only a ready application can go down"),
    )
    def lose(self, *, by, reason=""):
        """ready > creating."""
        self.reason = reason

    @transition(
        field=state,
        source=State.READY,
        target=State.CREATING,
        custom=refused("the application is %(state)s; only a ready application can be restarted"),
    )
    def renew(self, *, by, reason=""):
        """ready > creating."""
        self.reason = ""

    @transition(
        field=state,
        source=State.CREATING,
        target=State.ERROR,
        custom=refused("the application is %(state)s; only a starting application can fail"),
    )
    def fail(self, *, by, reason=""):
        """creating > error."""
        self.reason = reason

    @transition(
        field=state,
        source=[State.READY, State.ERROR],
        target=State.DELETING,
        custom=refused("the application is still starting; wait until it is ready or has failed before you delete it"),
    )
    def erase(self, *, by, reason=""):
        """ready, error > deleting."""


class Rollout(models.Model):
    """The move of an application to another model. Written only through apps.rollouts, under the application's lock.

    waiting     there is no room for a second run; `not_before` is the next attempt
    starting    `run_name` is the new run, which is not up yet
    restarting  the new run starts when the old one, `run_name`, has ended: the owner allows that
    ending      requests go to the run that they should; `run_name` is the other one, which is being stopped
    failed      `reason` says why; the application serves what it served before
    """

    class Phase(models.TextChoices):
        WAITING = "waiting", _("waiting for resources")
        STARTING = "starting", _("starting")
        RESTARTING = "restarting", _("restarting")
        ENDING = "ending", _("stopping the other run")
        FAILED = "failed", _("failed")

    app = models.OneToOneField(
        Application, on_delete=models.CASCADE, related_name="rollout", verbose_name=_("application")
    )
    model = models.ForeignKey(
        "models_app.Model", on_delete=models.PROTECT, related_name="rollouts", verbose_name=_("model")
    )
    phase = models.CharField(_("phase"), max_length=10, choices=Phase.choices)
    run_name = models.CharField(_("run"), max_length=64, blank=True)
    reserved = models.BooleanField(_("resources reserved"), default=False)
    reason = ReasonField(_("reason"), blank=True)
    ordered = models.DateTimeField(_("run ordered"), null=True, blank=True)
    not_before = models.DateTimeField(_("not before"), null=True, blank=True)
    created = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "app_rollout"
        verbose_name = _("rollout")
        verbose_name_plural = _("rollouts")

    def __str__(self) -> str:
        return f"{self.app} > {self.model}"
