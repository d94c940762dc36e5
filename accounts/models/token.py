"""Token: see accounts.tokens."""

from __future__ import annotations

import secrets

from django.db import models
from django.utils.translation import gettext_lazy as _

from .user import User


def new_nonce() -> str:
    return secrets.token_hex(16)


class Token(models.Model):
    """The row that a token is derived from; the token itself is never stored (see accounts.tokens)."""

    class Kind(models.TextChoices):
        USER = "user", _("user")
        SERVICE = "service", _("service")

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens", verbose_name=_("user"))
    kind = models.CharField(_("kind"), max_length=8, choices=Kind.choices, default=Kind.USER)
    name = models.CharField(_("name"), max_length=50, blank=True)
    nonce = models.CharField(max_length=32, default=new_nonce)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    rotated = models.DateTimeField(_("rotated"), null=True)
    used = models.DateTimeField(_("last used"), null=True)  # to within ten minutes: see accounts.tokens

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
