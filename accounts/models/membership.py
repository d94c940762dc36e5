"""Membership: which tenants a user is in, with which role. Written only through accounts.tenancy.members."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Role(models.TextChoices):
    """Each may do what those before it may (docs/tenants.md)."""

    VIEWER = "viewer", _("viewer")
    MEMBER = "member", _("member")
    ADMIN = "admin", _("tenant administrator")


SUBMITTING = (Role.MEMBER, Role.ADMIN)


class Membership(models.Model):
    """A tenant of a user, as `User.tenant` is one. Service accounts have none of their own: they use their owner's."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.CASCADE, related_name="memberships", verbose_name=_("tenant")
    )
    role = models.CharField(_("role"), max_length=10, choices=Role.choices, default=Role.MEMBER)
    by_groups = models.BooleanField(_("given by groups"), default=False, db_default=False)  # at the user's sign-in
    created = models.DateTimeField(_("since"), auto_now_add=True, db_default=Now())

    class Meta:
        db_table = "tenant_member"
        verbose_name = _("member")
        verbose_name_plural = _("members")
        constraints = [
            models.UniqueConstraint(fields=["user", "tenant"], name="tenant_member_once"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="tenant_member_role"),
        ]
        indexes = [models.Index(fields=["tenant", "role"], name="tenant_member_role_of")]

    def __str__(self) -> str:
        return f"{self.user}: {self.get_role_display()}"

    @property
    def history_owner(self) -> str:
        return self.user.username

    @property
    def history_name(self) -> str:
        return self.tenant.name
