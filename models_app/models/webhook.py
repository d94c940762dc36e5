"""RegistryWebhook and RegistryDelivery: subscribers to events of a registry, and deliveries still to be sent."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from kernel import sealing
from kernel.messages import ReasonField

PURPOSE = "registry webhook"


class RegistryWebhook(models.Model):
    """An address that gets the events of a user's registry. `events` is a list such as ["model_version.created"].

    `secret` signs what is sent. It is stored encrypted (kernel.sealing), and no call returns it.
    """

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="registry_webhooks", verbose_name=_("user")
    )
    key = models.UUIDField(_("id"), default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(_("name"), max_length=256)
    description = models.TextField(_("description"), blank=True, default="", db_default="")
    url = models.CharField(_("address"), max_length=500)
    events = models.JSONField(_("events"), default=list)
    secret = models.TextField(blank=True, default="", db_default="")
    active = models.BooleanField(_("active"), default=True, db_default=True)
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())
    updated = models.DateTimeField(_("changed"), auto_now=True, db_default=Now())

    class Meta:
        db_table = "registry_webhook"
        verbose_name = _("webhook of the registry")
        verbose_name_plural = _("webhooks of the registry")

    def __str__(self) -> str:
        return self.name

    @property
    def signing(self) -> str:
        """Return whether deliveries are signed: none without a secret, unreadable after a change of MLP_SECRET_KEY."""
        try:
            return "set" if sealing.unseal(self.secret, PURPOSE) else "none"
        except sealing.Unreadable:
            return "unreadable"


class RegistryDelivery(models.Model):
    """An event that one webhook is to get. `open` while another attempt will be made."""

    stored_by = "(SELECT user_id FROM registry_webhook WHERE id = r.webhook_id)"  # kernel.stored

    webhook = models.ForeignKey(
        RegistryWebhook, on_delete=models.CASCADE, related_name="deliveries", verbose_name=_("webhook")
    )
    key = models.UUIDField(_("id"), default=uuid.uuid4, unique=True, editable=False)
    event = models.CharField(_("event"), max_length=60)
    data = models.JSONField(_("data"))
    open = models.BooleanField(_("open"), default=True, db_default=True)
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0, db_default=0)
    not_before = models.DateTimeField(_("not before"), db_default=Now())
    problem = ReasonField(_("problem"), blank=True, default="", db_default="")
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())

    class Meta:
        db_table = "registry_delivery"
        verbose_name = _("delivery of the registry")
        verbose_name_plural = _("deliveries of the registry")
        indexes = [models.Index(fields=["not_before"], name="registry_delivery_due", condition=models.Q(open=True))]

    def __str__(self) -> str:
        return f"{self.webhook} {self.event}"

    @property
    def state(self) -> str:
        """Return sending, delivered or failed."""
        return "sending" if self.open else "failed" if self.problem else "delivered"
