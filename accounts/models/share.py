"""Shares: see accounts.sharing."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .user import User


class Share(models.Model):
    """A grant on one object: to a user, to a tenant, or to everybody with its link. Written by accounts.sharing.grants.

    The object is known by its kind and key, so a later object of the same name is not shared. A link's token is stored
    as a hash. A share that was revoked stays as a record until its object is deleted.
    """

    class Audience(models.TextChoices):
        USER = "user", _("user")
        TENANT = "tenant", _("tenant")
        LINK = "link", _("link")

    class Right(models.TextChoices):
        READ = "read", _("read only")
        CLONE = "clone", _("read and clone")

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="shares", verbose_name=_("owner"))
    kind = models.CharField(_("kind"), max_length=16)
    object_id = models.BigIntegerField(_("object"))
    name = models.CharField(_("name"), max_length=500)
    audience = models.CharField(_("shared with"), max_length=8, choices=Audience.choices)
    user = models.ForeignKey(
        User, on_delete=models.CASCADE, null=True, blank=True, related_name="shared_with_me", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.CASCADE, null=True, blank=True, related_name="+", verbose_name=_("tenant")
    )
    token_hash = models.CharField(max_length=64, blank=True)
    right = models.CharField(_("right"), max_length=8, choices=Right.choices, default=Right.READ)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    expires = models.DateTimeField(_("ends"), null=True, blank=True)
    revoked = models.DateTimeField(_("revoked"), null=True, blank=True)
    used = models.DateTimeField(_("last used"), null=True, blank=True)  # to within ten minutes

    class Meta:
        db_table = "share"
        verbose_name = _("share")
        verbose_name_plural = _("shares")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["kind", "object_id"], name="share_object"),
            models.Index(fields=["owner", "-id"], name="share_owner"),
            models.Index(fields=["user", "-id"], condition=models.Q(revoked=None), name="share_user"),
            models.Index(fields=["tenant", "-id"], condition=models.Q(revoked=None), name="share_tenant"),
        ]
        constraints = [
            models.CheckConstraint(condition=models.Q(audience__in=["user", "tenant", "link"]), name="share_audience"),
            models.CheckConstraint(condition=models.Q(right__in=["read", "clone"]), name="share_right"),
            models.CheckConstraint(
                condition=models.Q(audience="user", user__isnull=False, tenant=None, token_hash="")
                | models.Q(audience="tenant", user=None, tenant__isnull=False, token_hash="")
                | (models.Q(audience="link", user=None, tenant=None) & ~models.Q(token_hash="")),
                name="share_with_one",
            ),
            models.UniqueConstraint(
                fields=["kind", "object_id", "user"], condition=models.Q(revoked=None), name="share_user_once"
            ),
            models.UniqueConstraint(
                fields=["kind", "object_id", "tenant"], condition=models.Q(revoked=None), name="share_tenant_once"
            ),
            models.UniqueConstraint(fields=["token_hash"], condition=~models.Q(token_hash=""), name="share_token_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.audience}"

    @property
    def history_owner(self) -> str:
        return self.owner.username

    @property
    def history_name(self) -> str:
        return self.name[:64]
