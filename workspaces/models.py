"""Workspace. Written only through workspaces.lifecycle.

Workspace:
    creating         --up-->     ready
    ready            --renew-->  creating  (its run has ended without a fault of its own: it is started again)
    creating, ready  --fail-->   error
    creating, ready  --stop-->   stopping  (its run is being stopped)
    stopping         --rest-->   stopped   (its run is gone and its resources are released)
    stopped, error   --start-->  creating
    stopped, error   --erase-->  deleting  (its run is stopped, then files and row are removed)

While it is starting without reserved resources it is queued. Its files stay until it is deleted. A stopped or failed
one can be in the trash (trash.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from accounts.models import SUBMITTING
from accounts.models import State as AccountState
from kernel.messages import ReasonField
from kernel.models import Lifecycle, refused
from kernel.titles import Titled
from kernel.transitions import ConcurrentTransitionMixin
from kernel.trash import Trashable
from runners import gpu_types

QUEUED = _("queued")


def least(*limits: int | None) -> int | None:
    """Return the lowest of the limits; None and 0 are none."""
    return min(filter(None, limits), default=None)


class State(models.TextChoices):
    CREATING = "creating", _("starting")
    READY = "ready", _("running")
    STOPPING = "stopping", _("stopping")
    STOPPED = "stopped", _("stopped")
    ERROR = "error", _("failed")
    DELETING = "deleting", _("deleting")


LIVE = (State.CREATING, State.READY)


class Workspace(ConcurrentTransitionMixin, Trashable, Titled, Lifecycle):
    """JupyterLab beside its user's data. cpu in cores, gpu in devices, ram in MiB."""

    stored_by = "r.user_id"  # kernel.stored
    untitled = "lab"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="workspaces", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.PROTECT, related_name="workspaces", verbose_name=_("tenant")
    )
    name = models.CharField(_("name"), max_length=50)
    gpu = models.PositiveSmallIntegerField(_("GPU"), default=0)
    gpu_type = models.CharField(  # such as a100 (runners.gpu_types); empty: any
        _("GPU type"), max_length=gpu_types.MAX_LENGTH, blank=True, default="", db_default=""
    )
    cpu = models.FloatField(_("CPU"), default=1)
    ram = models.PositiveIntegerField(_("Memory (MiB)"), default=2048)
    environment = models.CharField(_("named environment"), max_length=80, blank=True, default="")
    environment_version = models.ForeignKey(
        "jobs.EnvironmentVersion", on_delete=models.SET_NULL, related_name="+", null=True, blank=True
    )
    datasets = models.JSONField(_("datasets"), default=list, blank=True)
    job = models.ForeignKey(  # whose code, arguments, inputs and output it opens
        "jobs.Job", on_delete=models.SET_NULL, related_name="+", null=True, blank=True, verbose_name=_("job")
    )
    model = models.ForeignKey(  # whose files it shows
        "models_app.Model", on_delete=models.SET_NULL, related_name="+", null=True, blank=True, verbose_name=_("model")
    )
    idle_minutes = models.PositiveIntegerField(_("stop when idle (minutes)"), null=True, blank=True)
    hours = models.PositiveIntegerField(_("stop after (hours)"), null=True, blank=True)
    state = FSMField(_("state"), default=State.CREATING, choices=State.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    reserved = models.BooleanField(_("resources reserved"), default=False)
    queued = models.DateTimeField(_("queued since"), null=True, blank=True)
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    run_name = models.CharField(_("run"), max_length=64, blank=True)
    ordered = models.DateTimeField(_("run ordered"), null=True, blank=True)
    packages = models.CharField(max_length=64, blank=True, default="")  # the digest of its environment
    ready_since = models.DateTimeField(_("running since"), null=True, blank=True)
    address = models.CharField(_("address"), max_length=300, blank=True)
    active = models.DateTimeField(_("last activity"), null=True, blank=True)
    busy = models.BooleanField(_("busy"), default=False)
    stops = models.DateTimeField(_("stops"), null=True, blank=True)  # it has been warned, and is stopped then
    size = models.BigIntegerField(_("bytes on the disk"), null=True, blank=True)  # of its files: workspaces.sizes
    measured = models.DateTimeField(_("measured"), null=True, blank=True)  # null again once it is at rest
    created = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "workspace"
        verbose_name = _("workspace")
        verbose_name_plural = _("workspaces")
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="workspace_name_once_per_user"),
            models.CheckConstraint(condition=Q(state__in=State.values), name="workspace_state"),
        ]
        indexes = [
            models.Index(fields=["state", "id"], name="workspace_unsteady"),
            models.Index(fields=["user", "-id"], name="workspace_newest"),
            models.Index(fields=["trashed"], name="workspace_trash", condition=Q(trashed__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @property
    def shown_state(self) -> str:
        return "queued" if self.state == State.CREATING and not self.reserved else self.state

    @property
    def shown_state_word(self) -> str:
        return str(QUEUED if self.shown_state == "queued" else self.get_state_display())

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def idle_limit(self) -> int | None:
        """Return after how many idle minutes it is stopped, by its own limit and today's policies; None: never."""
        return least(self.idle_minutes, self.tenant.workspace_idle_minutes, settings.WORKSPACE_IDLE_MINUTES)

    @property
    def hour_limit(self) -> int | None:
        """Return after how many hours it is stopped; None: never."""
        return least(self.hours, self.tenant.workspace_hours, settings.WORKSPACE_HOURS)

    @property
    def ends(self) -> datetime | None:
        """Return when its limit of hours stops it; None without one, or while it does not run."""
        return self.ready_since + timedelta(hours=self.hour_limit) if self.hour_limit and self.ready_since else None

    @transition(
        field=state,
        source=State.CREATING,
        target=State.READY,
        custom=refused("the workspace is %(state)s; only a starting workspace can become ready"),
    )
    def up(self, *, by, reason=""):
        """creating > ready."""
        self.reason = ""

    @transition(
        field=state,
        source=State.READY,
        target=State.CREATING,
        custom=refused("the workspace is %(state)s; only a running workspace can be started again"),
    )
    def renew(self, *, by, reason=""):
        """ready > creating."""
        self.reason = reason

    @transition(
        field=state,
        source=[State.CREATING, State.READY],
        target=State.ERROR,
        custom=refused("the workspace is %(state)s; only a starting or running workspace can fail"),
    )
    def fail(self, *, by, reason="", outcome=""):
        """creating, ready > error."""
        self.reason = reason

    @transition(
        field=state,
        source=[State.CREATING, State.READY],
        target=State.STOPPING,
        custom=refused("the workspace is %(state)s; only a starting or running workspace can be stopped"),
    )
    def stop(self, *, by, reason=""):
        """creating, ready > stopping."""
        self.reason = reason

    @transition(
        field=state,
        source=State.STOPPING,
        target=State.STOPPED,
        custom=refused("the workspace is %(state)s; only one that is being stopped comes to rest"),
    )
    def rest(self, *, by, reason=""):
        """stopping > stopped."""

    @transition(
        field=state,
        source=[State.STOPPED, State.ERROR],
        target=State.CREATING,
        custom=refused("the workspace is %(state)s; only a stopped or failed workspace can be started"),
    )
    def start(self, *, by, reason=""):
        """stopped, error > creating."""
        self.reason = ""

    @transition(
        field=state,
        source=[State.STOPPED, State.ERROR],
        target=State.DELETING,
        custom=refused("the workspace is %(state)s; stop it before you delete it"),
    )
    def erase(self, *, by, reason=""):
        """stopped, error > deleting."""


class Guests(models.QuerySet):
    """Guests of workspaces."""

    def standing(self) -> Guests:
        """Return those whose invitation is in force: they are active and may submit to the workspace's tenant, whose
        policy allows workspaces; the workspace is not in the trash.
        """
        return self.exclude(workspace__state=State.DELETING).filter(
            user__state=AccountState.ACTIVED, workspace__tenant__allows_workspaces=True, workspace__trashed=None,
            user__memberships__tenant=F("workspace__tenant"), user__memberships__role__in=SUBMITTING,
        )  # fmt: skip

    def let_in(self) -> Guests:
        """Return those who may enter now: they have accepted the invitation."""
        return self.standing().exclude(accepted=None)


class Guest(models.Model):
    """A user whom the owner of a workspace has invited to it, and who may enter once they have accepted. Written only
    through workspaces.guests.
    """

    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, related_name="guests", verbose_name=_("workspace")
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="invitations", verbose_name=_("guest")
    )
    invited = models.DateTimeField(_("invited"), auto_now_add=True)
    accepted = models.DateTimeField(_("accepted"), null=True, blank=True)

    objects = Guests.as_manager()

    class Meta:
        db_table = "workspace_guest"
        verbose_name = _("guest")
        verbose_name_plural = _("guests")
        constraints = [models.UniqueConstraint(fields=["workspace", "user"], name="workspace_guest_once")]

    def __str__(self) -> str:
        return f"{self.user}: {self.workspace}"
