"""Tenant, Loan, ResourceRequest, UserLimit, UsageSample. Written only through tcc, limits, usage and books.

ResourceRequest:
    tried               --confirm-->   confirmed
    tried               --cancel-->    cancelled     (a cancel before its try inserts a cancelled row)
    confirmed           --release-->   released      (a request of a platform's object that has ended)
    cancelled, released --reinstate--> confirmed     (only `manage.py books --repair`, for an object that exists)

The database itself keeps 0 <= in use <= capacity + borrowed - lent (resources.lending). In use is the sum of the live
requests (type request, tried or confirmed) less the confirmed releases (rows of their own, sent over REST);
tcc.allocated computes it from the rows.

A row with an owner belongs to an object of the platform (job, dataset, …) and has an id that `is_platform_id` accepts;
a row without one came over REST.
"""

from __future__ import annotations

import re
from decimal import Decimal

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

import runners
from kernel.models import refused
from kernel.transitions import ConcurrentTransitionMixin

from .policies import InteractivePolicy, LogPolicy, RecordPolicy, RetentionPolicy, RolloutPolicy

EVERYBODY = "*"
IDLE_POLICY = ("idle_gpu_minutes", "idle_gpu_percent", "idle_cpu_minutes", "idle_cpu_percent", "idle_grace_minutes")
MAX_IDLE_MINUTES = 30 * 24 * 60
KINDS = ("gpu", "cpu", "ram", "rom")
LENDABLE = ("gpu", "cpu", "ram")  # what is stored on a disk cannot step back
LENDING = ("lends", *(f"{kind}_borrow_limit" for kind in LENDABLE))  # the policy of a tenant
PLATFORM_ID = re.compile(r"((job|dataset|model|app|replica|rollout|workspace|artifacts):[0-9]+|aiops:[0-9a-f-]{36})")


def is_platform_id(id: str) -> bool:
    """Return whether the id has the form of the platform's own objects, which REST clients must not use."""
    return PLATFORM_ID.fullmatch(id) is not None


class Amounts(models.Model):
    """cpu in cores, gpu in devices, ram in MiB, rom in bytes."""

    cpu = models.DecimalField(_("CPU"), max_digits=14, decimal_places=6, default=Decimal(0))
    gpu = models.BigIntegerField(_("GPU"), default=0)
    ram = models.BigIntegerField(_("Memory (MiB)"), default=0)
    rom = models.BigIntegerField(_("Disk (bytes)"), default=0)

    class Meta:
        abstract = True

    def amounts(self) -> dict:
        """Return the four amounts by kind."""
        return {kind: getattr(self, kind) for kind in KINDS}


def _within(kind: str) -> models.CheckConstraint:
    inuse = f"{kind}_inuse"
    most = F(kind) + F(f"{kind}_borrowed") - F(f"{kind}_lent") if kind in LENDABLE else F(kind)
    return models.CheckConstraint(
        condition=Q(**{f"{inuse}__gte": 0}) & Q(**{f"{inuse}__lte": most}), name=f"tenant_{kind}_within_capacity"
    )


def _borrowed(kind: str) -> models.CheckConstraint:
    """Return the rule that only what is in use is borrowed, and not by a tenant that lends of that kind."""
    lent, borrowed = f"{kind}_lent", f"{kind}_borrowed"
    all_in_use = Q(**{lent: 0, f"{borrowed}__gt": 0, f"{kind}_inuse": F(kind) + F(borrowed)})
    return models.CheckConstraint(
        condition=Q(**{f"{lent}__gte": 0}) & (Q(**{borrowed: 0}) | all_in_use), name=f"tenant_{kind}_borrowed"
    )


class Network(models.TextChoices):
    """What a run may reach; each includes those after it (runners.narrowest)."""

    OPEN = "open", _("Platform and internet")
    PLATFORM = "platform", _("Platform only")
    NONE = "none", _("None")


class Tenant(RetentionPolicy, LogPolicy, InteractivePolicy, RolloutPolicy, RecordPolicy, Amounts):
    """A group of users with its own resources. At first there is only `default`, with every user."""

    class Source(models.TextChoices):
        DISCOVERED = "discovered", _("discovered")
        SET = "set", _("set")

    name = models.CharField(_("name"), max_length=50, unique=True)
    cpu_inuse = models.DecimalField(_("CPU in use"), max_digits=14, decimal_places=6, default=Decimal(0))
    gpu_inuse = models.BigIntegerField(_("GPU in use"), default=0)
    ram_inuse = models.BigIntegerField(_("Memory in use"), default=0)
    rom_inuse = models.BigIntegerField(_("Disk in use"), default=0)
    source = models.CharField(_("capacity is"), max_length=10, choices=Source.choices, default=Source.DISCOVERED)
    network = models.CharField(
        _("network"), max_length=10, choices=Network.choices, blank=True, default="", db_default=""
    )
    # When jobs.idle stops a job: minutes below the percentage of what it has reserved, null for never.
    idle_gpu_minutes = models.PositiveIntegerField(_("idle after (minutes, GPU)"), null=True, blank=True)
    idle_gpu_percent = models.PositiveSmallIntegerField(_("idle below (% of its GPUs)"), default=5, db_default=5)
    idle_cpu_minutes = models.PositiveIntegerField(_("idle after (minutes, CPU)"), null=True, blank=True)
    idle_cpu_percent = models.PositiveSmallIntegerField(_("idle below (% of its CPU)"), default=5, db_default=5)
    idle_grace_minutes = models.PositiveIntegerField(
        _("minutes from the warning to the stop"), default=10, db_default=10
    )
    # Borrowing (resources.lending): the sums of the loans, and what an administrator allows; 0 for no borrowing.
    lends = models.BooleanField(_("lends idle resources"), default=False, db_default=False)
    recalled_until = models.DateTimeField(
        _("loans recalled until"), null=True, blank=True
    )  # one of its users needs them
    gpu_lent = models.BigIntegerField(_("GPU lent"), default=0, db_default=0)
    cpu_lent = models.DecimalField(_("CPU lent"), max_digits=14, decimal_places=6, default=0, db_default=0)
    ram_lent = models.BigIntegerField(_("Memory lent"), default=0, db_default=0)
    gpu_borrowed = models.BigIntegerField(_("GPU borrowed"), default=0, db_default=0)
    cpu_borrowed = models.DecimalField(_("CPU borrowed"), max_digits=14, decimal_places=6, default=0, db_default=0)
    ram_borrowed = models.BigIntegerField(_("Memory borrowed"), default=0, db_default=0)
    gpu_borrow_limit = models.BigIntegerField(_("GPU borrowing limit"), default=0, db_default=0)
    cpu_borrow_limit = models.DecimalField(
        _("CPU borrowing limit"), max_digits=14, decimal_places=6, default=0, db_default=0
    )
    ram_borrow_limit = models.BigIntegerField(_("Memory borrowing limit"), default=0, db_default=0)

    class Meta:
        db_table = "tenant"
        verbose_name = _("tenant")
        verbose_name_plural = _("tenants")
        constraints = [*(_within(kind) for kind in KINDS), *(_borrowed(kind) for kind in LENDABLE)]

    def __str__(self) -> str:
        return self.name

    @property
    def history_owner(self) -> str:
        return ""  # no user's

    @property
    def history_name(self) -> str:
        return self.name

    @property
    def network_policy(self) -> str:
        """Return what runs of the tenant may reach at most, and do where they ask for nothing else."""
        return runners.narrowest(settings.RUN_NETWORK, self.network)

    @property
    def lends_now(self) -> bool:
        """Return whether it lends what it does not use."""
        return self.lends and (self.recalled_until is None or self.recalled_until < timezone.now())

    def borrowed(self, kind: str):
        """Return how much of the kind is borrowed from other tenants."""
        return getattr(self, f"{kind}_borrowed", 0)

    def lent(self, kind: str):
        """Return how much of the kind other tenants have borrowed."""
        return getattr(self, f"{kind}_lent", 0)

    def borrow_limit(self, kind: str):
        """Return how much of the kind may be borrowed at a time."""
        return getattr(self, f"{kind}_borrow_limit", 0)

    def left(self, kind: str):
        """Return how much of the kind is neither in use nor lent."""
        return getattr(self, kind) + self.borrowed(kind) - self.lent(kind) - getattr(self, f"{kind}_inuse")


class Loan(models.Model):
    """What one tenant has borrowed from another; only while it is something."""

    lender = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="loans_given", verbose_name=_("lender"))
    borrower = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="loans_taken", verbose_name=_("borrower")
    )
    gpu = models.BigIntegerField(_("GPU"), default=0)
    cpu = models.DecimalField(_("CPU"), max_digits=14, decimal_places=6, default=Decimal(0))
    ram = models.BigIntegerField(_("Memory (MiB)"), default=0)

    class Meta:
        db_table = "tenant_loan"
        verbose_name = _("loan")
        verbose_name_plural = _("loans")
        constraints = [
            models.UniqueConstraint(fields=["borrower", "lender"], name="tenant_loan_once"),
            models.CheckConstraint(condition=~Q(lender=F("borrower")), name="tenant_loan_to_another"),
            models.CheckConstraint(
                condition=Q(cpu__gte=0, gpu__gte=0, ram__gte=0) & (Q(cpu__gt=0) | Q(gpu__gt=0) | Q(ram__gt=0)),
                name="tenant_loan_of_something",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.lender_id} to {self.borrower_id}"


class State(models.TextChoices):
    TRIED = "tried", _("tried")
    CONFIRMED = "confirmed", _("confirmed")
    CANCELLED = "cancelled", _("cancelled")
    RELEASED = "released", _("released")


class Applier(models.TextChoices):
    DM = "dm", _("data manager")
    JM = "jm", _("job manager")
    AM = "am", _("application manager")
    MM = "mm", _("model manager")


class RequestType(models.TextChoices):
    REQUEST = "request", _("request")
    RELEASE = "release", _("release")


LIVE = Q(request_type=RequestType.REQUEST, state__in=[State.TRIED, State.CONFIRMED])
HELD = LIVE & Q(owner__gt="")  # by the platform's own objects
GIVEN_BACK = Q(request_type=RequestType.RELEASE, state=State.CONFIRMED)


class ResourceRequest(ConcurrentTransitionMixin, Amounts):
    """One try-confirm-cancel. The row is its own history: created, settled (the first end of trying), released."""

    keeps_own_history = True

    id = models.CharField(max_length=64, primary_key=True)
    applier = models.CharField(_("applier"), max_length=2, choices=Applier.choices)
    request_type = models.CharField(_("type"), max_length=7, choices=RequestType.choices)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, related_name="requests", verbose_name=_("tenant")
    )
    owner = models.CharField(_("owner"), max_length=50, blank=True)
    state = FSMField(_("state"), default=State.TRIED, choices=State.choices, protected=True)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    settled = models.DateTimeField(_("settled"), null=True)
    released = models.DateTimeField(_("released"), null=True)

    class Meta:
        db_table = "resource_request"
        verbose_name = _("resource request")
        verbose_name_plural = _("resource requests")
        constraints = [
            models.CheckConstraint(condition=Q(state__in=State.values), name="resource_request_state"),
            models.CheckConstraint(
                condition=Q(cpu__gte=0, gpu__gte=0, ram__gte=0, rom__gte=0), name="resource_request_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(tenant__isnull=False) | Q(state="cancelled"), name="resource_request_has_tenant"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "request_type", "state"], name="resource_request_books"),
            models.Index(fields=["-created"], name="resource_request_newest"),
            models.Index(fields=["created"], name="resource_request_open", condition=Q(state="tried")),
            models.Index(fields=["tenant", "owner"], name="resource_request_held", condition=HELD),
        ]

    def __str__(self) -> str:
        return f"{self.id} ({self.request_type}, {self.state})"

    @transition(
        field=state,
        source=State.TRIED,
        target=State.CONFIRMED,
        custom=refused("the request is %(state)s; only a tried request can be confirmed"),
    )
    def confirm(self, *, by, reason=""):
        """Move from tried to confirmed."""

    @transition(
        field=state,
        source=State.TRIED,
        target=State.CANCELLED,
        custom=refused("the request is %(state)s; only a tried request can be cancelled"),
    )
    def cancel(self, *, by, reason=""):
        """Move from tried to cancelled."""

    @transition(
        field=state,
        source=State.CONFIRMED,
        target=State.RELEASED,
        custom=refused("the request is %(state)s; only a confirmed request can be released"),
    )
    def release(self, *, by, reason=""):
        """Move from confirmed to released."""

    @transition(
        field=state,
        source=[State.CANCELLED, State.RELEASED],
        target=State.CONFIRMED,
        custom=refused("the request is %(state)s; only a cancelled or released request can be reinstated"),
    )
    def reinstate(self, *, by, reason=""):
        """Move from cancelled or released to confirmed."""


class UserLimit(models.Model):
    """How much of a tenant one user may hold at a time; null is no limit. User "" is everybody without an own row.

    Users are named, not referred to, because accounts imports resources and not the reverse.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="limits", verbose_name=_("tenant"))
    user = models.CharField(_("user"), max_length=50, blank=True, help_text=_("empty: all users without their own"))
    cpu = models.DecimalField(_("CPU"), max_digits=14, decimal_places=6, null=True, blank=True)
    gpu = models.BigIntegerField(_("GPU"), null=True, blank=True)
    ram = models.BigIntegerField(_("Memory (MiB)"), null=True, blank=True)
    rom = models.BigIntegerField(_("Disk (bytes)"), null=True, blank=True)
    # Of what the user's entries take in the database, whichever tenant they belong to: kernel.stored.
    database = models.PositiveIntegerField(_("Database (MiB)"), null=True, blank=True)
    # Of what the folders of the user's jobs and workspaces take, in any tenant: jobs.artifacts.outputs.
    outputs = models.PositiveIntegerField(_("Job and workspace files (MiB)"), null=True, blank=True)

    class Meta:
        db_table = "user_limit"
        verbose_name = _("limit of a user")
        verbose_name_plural = _("limits of users")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="user_limit_once"),
            *[
                models.CheckConstraint(
                    condition=Q(**{f"{kind}__isnull": True}) | Q(**{f"{kind}__gte": 0}), name=f"user_limit_{kind}"
                )
                for kind in KINDS
            ],
        ]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.who}"

    @property
    def who(self) -> str:
        return self.user or EVERYBODY


class GpuProduct(models.Model):
    """How many GPUs of one product the machine or the cluster has for runs, as it was last measured.

    `name` is empty for those of an unknown product. It is no amount of a tenant: tenants count GPUs of all products.
    """

    name = models.CharField(_("product"), max_length=200, unique=True, blank=True)
    count = models.PositiveIntegerField(_("GPUs"))

    class Meta:
        db_table = "gpu_product"
        verbose_name = _("GPU product")
        verbose_name_plural = _("GPU products")

    def __str__(self) -> str:
        return f"{self.name or '?'} ({self.count})"


class UsageSample(Amounts):
    """What one owner's objects of one kind held at one moment. All rows of a tenant and moment are one snapshot.

    A moment at which nothing was in use has one row of zeros, without owner and applier.
    """

    at = models.DateTimeField(_("at"))
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="samples", verbose_name=_("tenant"))
    owner = models.CharField(_("owner"), max_length=50, blank=True)
    applier = models.CharField(_("applier"), max_length=2, blank=True)

    class Meta:
        db_table = "usage_sample"
        verbose_name = _("usage sample")
        verbose_name_plural = _("usage samples")
        constraints = [
            models.UniqueConstraint(fields=["tenant", "at", "owner", "applier"], name="usage_sample_once"),
        ]
        indexes = [models.Index(fields=["at"], name="usage_sample_age")]

    def __str__(self) -> str:
        return f"{self.at:%F %T} {self.tenant_id} {self.owner} {self.applier}"
