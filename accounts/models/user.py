"""User, written only through accounts.lifecycle.

User:
    NotActive --activate-->   Actived
    Actived   --deregister--> NotActive
"""

from __future__ import annotations

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel.database import all_rows
from kernel.models import refused
from kernel.transitions import ConcurrentTransitionMixin

from .membership import Membership, Role


class State(models.TextChoices):
    NOT_ACTIVE = "NotActive", _("not active")
    ACTIVED = "Actived", _("active")


ADMINISTRATORS = models.Q(is_staff=True, is_superuser=True)  # those of `User.is_administrator`, for queries


class UserManager(BaseUserManager):
    def get_by_natural_key(self, username):
        return self.get(username=username)


class User(ConcurrentTransitionMixin, AbstractBaseUser, PermissionsMixin):
    """An account. Its username stays taken after deactivation. `is_active` follows from the state."""

    username = models.CharField(_("username"), max_length=50, unique=True)
    state = FSMField(_("state"), default=State.NOT_ACTIVE, choices=State.choices, protected=True)
    is_staff = models.BooleanField(_("administrator"), default=False)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    tenant = models.ForeignKey(  # where the user's objects belong that name none; one of the user's memberships
        "resources.Tenant", on_delete=models.PROTECT, related_name="users", verbose_name=_("tenant")
    )
    owner = models.ForeignKey(  # of a service account (accounts.service_accounts), else None
        "self", on_delete=models.PROTECT, null=True, related_name="service_accounts", verbose_name=_("owner")
    )

    objects = UserManager()

    USERNAME_FIELD = "username"
    REQUIRED_FIELDS: list[str] = []

    class Meta:
        db_table = "user"
        verbose_name = _("user")
        verbose_name_plural = _("users")
        constraints = [models.CheckConstraint(condition=models.Q(state__in=State.values), name="user_state")]

    def __str__(self) -> str:
        return self.username

    @property
    def is_active(self) -> bool:
        return self.state == State.ACTIVED

    @property
    def is_administrator(self) -> bool:
        """Return whether the user has all rights, outside of the admin as well. `is_staff` alone opens the admin, for
        what permissions were granted there; it gives nothing in REST, the data service, pages and websockets.
        """
        return self.is_staff and self.is_superuser

    def check_password(self, raw_password) -> bool:
        """Return whether it is the user's password; a hash of an older release is replaced by a current one.

        Only the column is written, and only where the password is still the same: it may be changed meanwhile.
        """

        def upgrade(raw: str) -> None:
            renewed = make_password(raw)
            if User.objects.filter(pk=self.pk, password=self.password).update(password=renewed):
                self.password = renewed  # the session that is opened now belongs to it

        return check_password(raw_password, self.password, upgrade)

    @property
    def member_id(self) -> int:
        """Return the key of the user whose memberships count: a service account has those of its owner."""
        return self.owner_id or self.pk

    def roles(self) -> dict[int, str]:
        """Return the user's role in each of their tenants, by key. A service account administers none."""
        members = all_rows(Membership, {"user_id": self.member_id}, "tenant", "role")  # asked by each submission, twice
        by_tenant = {each.tenant_id: each.role for each in members}
        return {key: Role.MEMBER if self.owner_id and role == Role.ADMIN else role for key, role in by_tenant.items()}

    def administers(self, tenant_id: int) -> bool:
        """Return whether the user manages that tenant's members and work: its administrators, and the platform's."""
        return self.is_administrator or self.roles().get(tenant_id) == Role.ADMIN

    @property
    def history_owner(self) -> str:
        return self.username

    @property
    def history_name(self) -> str:
        return self.username

    @transition(
        field=state,
        source=State.NOT_ACTIVE,
        target=State.ACTIVED,
        custom=refused("the account is already active"),
    )
    def activate(self, *, by, reason=""):
        """NotActive > Actived."""

    @transition(
        field=state,
        source=State.ACTIVED,
        target=State.NOT_ACTIVE,
        custom=refused("the account is not active"),
    )
    def deregister(self, *, by, reason=""):
        """Actived > NotActive."""
