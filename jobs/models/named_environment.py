"""NamedEnvironment: packages under a name that a tenant shares, in numbered versions. Written only through
jobs.packages.named.lifecycle.

EnvironmentVersion:
    building                --complete--> ready
    building                --fail-->     failed
    failed                  --retry-->    building
    building, ready, failed --erase-->    deleting   (its files are removed first, then the row)

Each change of a name's packages is its next version; the number of a version that was deleted is not used again.
`requirements` are the lines that were given, `pins` those that were installed: what is removed from the disk is
installed again from them. `packages` is the digest of the environment that was built, in the folder of `user`, who has
made the version (jobs.packages.store).
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel import masking
from kernel.messages import ReasonField
from kernel.models import Lifecycle, refused
from kernel.transitions import ConcurrentTransitionMixin

from .submission import Runtime

MAX_NAME = 50


class NamedEnvironment(models.Model):
    """A name of a tenant, and who owns it. It stays when its versions are deleted, for the next number."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="named_environments", verbose_name=_("owner")
    )
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.CASCADE, related_name="environments", verbose_name=_("tenant")
    )
    name = models.CharField(_("name"), max_length=MAX_NAME)
    last = models.PositiveIntegerField(_("last version"), default=0)

    class Meta:
        db_table = "named_environment"
        verbose_name = _("named environment")
        verbose_name_plural = _("named environments")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="named_environment_once_per_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


class VersionState(models.TextChoices):
    BUILDING = "building", _("building")
    READY = "ready", _("ready")
    FAILED = "failed", _("failed")
    DELETING = "deleting", _("deleting")


class EnvironmentVersion(ConcurrentTransitionMixin, Lifecycle):
    """One version of a named environment; it belongs to who has made it, whose room its files take."""

    stored_by = "r.user_id"  # kernel.stored

    environment = models.ForeignKey(
        NamedEnvironment, on_delete=models.CASCADE, related_name="versions", verbose_name=_("environment")
    )
    number = models.PositiveIntegerField(_("version"))
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="environment_versions",
        verbose_name=_("created by"),
    )  # fmt: skip
    runtime = models.CharField(_("runtime"), max_length=10, choices=Runtime.choices, default=Runtime.PYTHON)
    requirements = models.TextField(_("packages"))
    pins = models.TextField(_("installed packages"), blank=True, default="")
    packages = models.CharField(_("digest"), max_length=32)
    state = FSMField(_("state"), default=VersionState.BUILDING, choices=VersionState.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    failed_package = models.CharField(_("package that failed"), max_length=200, blank=True, default="")
    ordered = models.DateTimeField(_("build ordered"), default=timezone.now)
    used = models.DateTimeField(_("last used"), null=True, blank=True)
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())

    class Meta:
        db_table = "environment_version"
        verbose_name = _("version of an environment")
        verbose_name_plural = _("versions of environments")
        constraints = [
            models.UniqueConstraint(fields=["environment", "number"], name="environment_version_once"),
            models.CheckConstraint(condition=Q(state__in=VersionState.values), name="environment_version_state"),
        ]
        indexes = [models.Index(fields=["state", "id"], name="environment_version_unsteady")]

    def __str__(self) -> str:
        return self.reference

    @property
    def name(self) -> str:
        return self.environment.name

    @property
    def tenant(self):
        return self.environment.tenant

    @property
    def reference(self) -> str:
        """Return what jobs name it by."""
        return f"{self.environment.name}@{self.number}"

    @property
    def shown_requirements(self) -> str:
        """Return the packages that were asked for, without passwords in addresses."""
        return masking.without_credentials(self.requirements)

    @property
    def shown_pins(self) -> str:
        """Return the packages that were installed, without passwords in addresses."""
        return masking.without_credentials(self.pins)

    @property
    def short_reason(self) -> str:
        """Return why it has failed, without the lines of the log."""
        return getattr(self.reason, "params", {}).get("message", self.reason)

    @property
    def history_name(self) -> str:
        return self.reference

    @property
    def shown_state(self) -> str:
        """Return the state that pages show, with the colours of all other objects."""
        return {"building": "creating", "failed": "error"}.get(self.state, self.state)

    @transition(
        field=state,
        source=VersionState.BUILDING,
        target=VersionState.READY,
        custom=refused("the environment is %(state)s; only one that is being installed can become ready"),
    )
    def complete(self, *, by, reason=""):
        """building > ready."""

    @transition(
        field=state,
        source=VersionState.BUILDING,
        target=VersionState.FAILED,
        custom=refused("the environment is %(state)s; only an installation in progress can fail"),
    )
    def fail(self, *, by, reason=""):
        """building > failed."""
        self.reason = reason

    @transition(
        field=state,
        source=VersionState.FAILED,
        target=VersionState.BUILDING,
        custom=refused("the environment is %(state)s; only a failed installation can be tried again"),
    )
    def retry(self, *, by, reason=""):
        """failed > building."""

    @transition(
        field=state,
        source=[VersionState.BUILDING, VersionState.READY, VersionState.FAILED],
        target=VersionState.DELETING,
        custom=refused("the environment is being deleted"),
    )
    def erase(self, *, by, reason=""):
        """building, ready, failed > deleting."""
