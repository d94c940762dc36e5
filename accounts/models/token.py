"""Token: see accounts.tokens."""

from __future__ import annotations

import secrets

from django.db import models
from django.utils.translation import gettext_lazy as _

from kernel.registering import RegistryRights

from .user import User


def new_nonce() -> str:
    return secrets.token_hex(16)


class Scope(models.TextChoices):
    """What a named token may do (accounts.scopes)."""

    FULL = "full", _("everything, except for the account and its tokens")
    READ = "read", _("read, and change nothing")
    SUBMIT = "submit", _("read, upload data, submit and cancel jobs")
    DATASET = "dataset", _("read and write the files of one dataset")
    APPLICATION = "application", _("call one application")


TARGETED = (Scope.DATASET, Scope.APPLICATION)  # which are for one object, by its name


class Token(RegistryRights):
    """The row that a token is derived from; the token itself is never stored (see accounts.tokens)."""

    class Kind(models.TextChoices):
        USER = "user", _("user")
        SERVICE = "service", _("service")
        NAMED = "named", _("named")

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens", verbose_name=_("user"))
    kind = models.CharField(_("kind"), max_length=8, choices=Kind.choices, default=Kind.USER)
    name = models.CharField(_("name"), max_length=50, blank=True)
    nonce = models.CharField(max_length=32, default=new_nonce)
    scope = models.CharField(_("scope"), max_length=12, choices=Scope.choices, default=Scope.FULL)
    target = models.CharField(_("only for"), max_length=100, blank=True)  # the dataset's or application's name
    created = models.DateTimeField(_("created"), auto_now_add=True)
    rotated = models.DateTimeField(_("rotated"), null=True)
    expires = models.DateTimeField(_("expires"), null=True)
    warned = models.BooleanField(default=False)  # the user was notified that it expires soon
    used = models.DateTimeField(_("last used"), null=True)  # to within tokens.CACHE_S, or CACHE_NAMED_S
    address = models.GenericIPAddressField(_("from address"), null=True)  # of the last use, where it is known

    class Meta:
        db_table = "token"
        verbose_name = _("token")
        verbose_name_plural = _("tokens")
        constraints = [
            models.UniqueConstraint(fields=["user"], condition=models.Q(kind="user"), name="token_one_user_token_each"),
            models.UniqueConstraint(fields=["user", "name"], condition=models.Q(kind="named"), name="token_name_once"),
            models.CheckConstraint(condition=models.Q(kind__in=["user", "service", "named"]), name="token_kind"),
            models.CheckConstraint(condition=models.Q(scope__in=Scope.values), name="token_scope"),
            models.CheckConstraint(condition=models.Q(kind="named") | models.Q(scope="full"), name="token_narrow"),
            models.CheckConstraint(
                condition=models.Q(target="") ^ models.Q(scope__in=[scope.value for scope in TARGETED]),
                name="token_target",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.name}".strip()
