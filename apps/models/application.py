"""Application. Written only through apps.lifecycle.

Application:
    creating         --up-->     ready
    ready            --lose-->   creating  (its run has ended: it is restarted after a pause)
    ready            --renew-->  creating  (its run was stopped on request, which is no failure: restarted at once)
    creating         --fail-->   error
    creating, ready  --stop-->   error     (by its owner: its run is stopped, then its resources are released)
    error            --start-->  creating
    ready, error     --erase-->  deleting  (its run is stopped, then files and row are removed)
    ready            --rest-->   ready     (nobody has asked for long: its run is stopped, its resources are released)
    ready            --wake-->   creating  (a request has come to one that is asleep)

While it is starting without reserved resources it is queued (apps.queueing). A stopped one is in `error`, since the
states of REST are fixed; `stopped` tells it from a failed one. One that is `asleep` is ready, since a request is
answered: it waits for the start. With several replicas one run is the application's own; the others are rows of
Replica.
`alias` is what the application follows: when it names another version, the application moves to that (Rollout).
`failures` counts the runs that ended since the application was last up for a while. `port` belongs to the row until it
is removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import models
from django.db.models import Q, Value
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel.messages import ReasonField
from kernel.models import Lifecycle, refused
from kernel.titles import Titled
from kernel.transitions import ConcurrentTransitionMixin
from kernel.trash import Trashable
from runners import gpu_types

PORTS = range(31000, 50001)


# States of pages that REST does not have.
SHOWN_ONLY = {"queued": _("queued"), "stopped": _("stopped"), "asleep": _("asleep")}


class State(models.TextChoices):
    CREATING = "creating", _("starting")
    READY = "ready", _("ready")
    ERROR = "error", _("failed")
    DELETING = "deleting", _("deleting")


@dataclass(frozen=True)
class Counts:
    """How many runs of an application are up, how many will be, and why one of them is not."""

    ready: int
    starting: int
    reason: str


class Application(ConcurrentTransitionMixin, Trashable, Titled, Lifecycle):
    """A model served behind the application gateway. cpu in cores, gpu in devices, ram in MiB."""

    stored_by = "r.user_id"  # kernel.stored
    untitled = "app"

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
    gpu_type = models.CharField(  # such as a100 (runners.gpu_types); empty: any
        _("GPU type"), max_length=gpu_types.MAX_LENGTH, blank=True, default="", db_default=""
    )
    cpu = models.FloatField(_("CPU"), default=1)
    ram = models.PositiveIntegerField(_("Memory (MiB)"), default=512)
    public = models.BooleanField(_("public"), default=False)
    # Of callers without a key or token, in one minute; None: no limit.
    address_rate = models.PositiveIntegerField(_("requests per minute and address"), null=True, blank=True)
    origins = models.JSONField(_("CORS origins"), default=list, db_default=Value([], models.JSONField()), blank=True)
    body_mib = models.PositiveSmallIntegerField(_("largest body (MiB)"), null=True, blank=True)
    answer_s = models.PositiveIntegerField(_("longest answer (s)"), null=True, blank=True)
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
    slot = models.PositiveSmallIntegerField(default=0, db_default=0)  # which files its run writes
    alias = models.ForeignKey(
        "models_app.Alias", on_delete=models.SET_NULL, null=True, blank=True, related_name="followers",
        verbose_name=_("alias"),
    )  # fmt: skip
    may_restart = models.BooleanField(_("restart if there is no room for two"), default=False, db_default=False)
    stopped = models.BooleanField(_("stopped"), default=False, db_default=False)
    queued = models.DateTimeField(_("queued since"), null=True, blank=True)
    served_as = models.CharField(_("name in addresses"), max_length=50, blank=True, default="", db_default="")
    resumes = models.BooleanField(default=False, db_default=False)  # was up when it was moved to the trash
    replicas_min = models.PositiveSmallIntegerField(_("fewest replicas"), default=1, db_default=1)  # 0: it may sleep
    replicas_max = models.PositiveSmallIntegerField(_("most replicas"), default=1, db_default=1)
    target = models.PositiveSmallIntegerField(_("requests at once per replica"), null=True, blank=True)  # None: any
    asleep = models.BooleanField(_("asleep"), default=False, db_default=False)  # ready without a run
    generation = models.PositiveIntegerField(default=0, db_default=0)  # of what it serves: replicas of others go
    canary = models.JSONField(default=dict, db_default=Value({}, models.JSONField()), blank=True)  # apps.canaries
    fewer_since = models.DateTimeField(null=True, blank=True)  # since when fewer replicas would have been enough
    environment = models.CharField(  # torch-cpu@3: a named environment, in place of the model's packages
        _("named environment"), max_length=80, blank=True, default="", db_default="")  # fmt: skip
    environment_version = models.ForeignKey(
        "jobs.EnvironmentVersion", on_delete=models.SET_NULL, related_name="+", null=True, blank=True)  # fmt: skip
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
            models.Index(fields=["trashed"], name="application_trash", condition=Q(trashed__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @property
    def shown_state(self) -> str:
        if self.state == State.CREATING and not self.reserved:
            return "queued"
        if self.state == State.READY and self.asleep:
            return "asleep"
        return "stopped" if self.state == State.ERROR and self.stopped else self.state

    @property
    def shown_state_word(self) -> str:
        return str(SHOWN_ONLY.get(self.shown_state, self.get_state_display()))

    @property
    def counts(self) -> Counts:
        """Return how many runs it has now, with its own one."""
        rows = [row for row in self.replicas.all() if row.phase != "ending"]
        up = sum(row.phase == "ready" for row in rows)
        reasons = [row.reason for row in rows if row.phase == "waiting" and row.reason]
        own_up = self.state == State.READY and not self.asleep
        return Counts(up + own_up, len(rows) - up + (self.state == State.CREATING), reasons[0] if reasons else "")

    @property
    def is_scaled(self) -> bool:
        """Return whether it may have another number of runs than one."""
        return (self.replicas_min, self.replicas_max) != (1, 1)

    @property
    def served_name(self) -> str:
        """Return the name of the model in the addresses of the Open Inference Protocol. What follows an alias keeps its
        own name there, since its models have different ones; what was moved to another model by its owner keeps the
        name that its clients know.
        """
        return self.served_as or (self.name if self.alias_id else self.model.name)

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
        source=State.READY,
        target=State.READY,
        custom=refused("the application is %(state)s; only a ready application can sleep"),
    )
    def rest(self, *, by, reason=""):
        """ready > ready."""
        self.asleep = True
        self.reason = ""

    @transition(
        field=state,
        source=State.READY,
        target=State.CREATING,
        custom=refused("the application is %(state)s; only one that sleeps can wake"),
    )
    def wake(self, *, by, reason=""):
        """ready > creating."""
        self.asleep = False
        self.reason = ""

    @transition(
        field=state,
        source=State.CREATING,
        target=State.ERROR,
        custom=refused("the application is %(state)s; only a starting application can fail"),
    )
    def fail(self, *, by, reason="", outcome=""):
        """creating > error."""
        self.reason = reason

    @transition(
        field=state,
        source=[State.CREATING, State.READY],
        target=State.ERROR,
        custom=refused("the application is %(state)s; only a starting or ready application can be stopped"),
    )
    def stop(self, *, by, reason=""):
        """creating, ready > error."""
        self.reason = reason
        self.stopped, self.asleep = True, False

    @transition(
        field=state,
        source=State.ERROR,
        target=State.CREATING,
        custom=refused("the application is %(state)s; only a stopped or failed application can be started"),
    )
    def start(self, *, by, reason=""):
        """error > creating."""
        self.reason = ""
        self.stopped = False

    @transition(
        field=state,
        source=[State.READY, State.ERROR],
        target=State.DELETING,
        custom=refused("the application is still starting; wait until it is ready or has failed before you delete it"),
    )
    def erase(self, *, by, reason=""):
        """ready, error > deleting."""
