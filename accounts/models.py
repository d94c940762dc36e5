"""User and Token. Written only through accounts.lifecycle.

User:
    NotActive --activate-->   Actived
    Actived   --deregister--> NotActive
"""

from __future__ import annotations

import secrets

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.utils.translation import gettext_lazy as _
from django_fsm import ConcurrentTransitionMixin, FSMField, transition


class State(models.TextChoices):
    NOT_ACTIVE = "NotActive", _("not active")
    ACTIVED = "Actived", _("active")


class UserManager(BaseUserManager):
    def get_by_natural_key(self, username):
        return self.get(username=username)


class User(ConcurrentTransitionMixin, AbstractBaseUser, PermissionsMixin):
    """A person. The name stays taken after de-registration. `is_active` follows from the state."""

    username = models.CharField(_("username"), max_length=50, unique=True)
    state = FSMField(_("state"), default=State.NOT_ACTIVE, choices=State.choices, protected=True)
    is_staff = models.BooleanField(_("operator"), default=False)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.PROTECT, related_name="users", verbose_name=_("tenant")
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
    def history_owner(self) -> str:
        return self.username

    @property
    def history_name(self) -> str:
        return self.username

    @transition(field=state, source=State.NOT_ACTIVE, target=State.ACTIVED)
    def activate(self, *, by, reason=""):
        """NotActive > Actived."""

    @transition(field=state, source=State.ACTIVED, target=State.NOT_ACTIVE)
    def deregister(self, *, by, reason=""):
        """Actived > NotActive."""


def new_nonce() -> str:
    return secrets.token_hex(16)


class Token(models.Model):
    """What a token is derived from; the token itself is never stored (see accounts.tokens)."""

    class Kind(models.TextChoices):
        USER = "user", _("user")
        SERVICE = "service", _("service")

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens", verbose_name=_("user"))
    kind = models.CharField(_("kind"), max_length=8, choices=Kind.choices, default=Kind.USER)
    name = models.CharField(_("name"), max_length=50, blank=True)
    nonce = models.CharField(max_length=32, default=new_nonce)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    rotated = models.DateTimeField(_("rotated"), null=True)

    class Meta:
        db_table = "token"
        verbose_name = _("token")
        verbose_name_plural = _("tokens")
        constraints = [
            models.UniqueConstraint(fields=["user"], condition=models.Q(kind="user"), name="token_one_user_token_each"),
            models.CheckConstraint(condition=models.Q(kind__in=["user", "service"]), name="token_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.name}".strip()
