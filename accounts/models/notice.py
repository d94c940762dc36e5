"""Preferences, notices and their deliveries."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from kernel.messages import ReasonField
from kernel.titles import Titled

from .user import User


class Preference(models.Model):
    """A user's settings. Empty means the default: the browser's language, the system's theme, no notices sent."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="preference", verbose_name=_("user"))
    language = models.CharField(_("language"), max_length=10, blank=True)
    theme = models.CharField(_("theme"), max_length=5, blank=True)
    email = models.EmailField(_("e-mail"), blank=True)
    webhook = models.CharField(_("webhook"), max_length=500, blank=True)
    # Kind of notice -> one of its levels in accounts/notices.py; all notices of the kinds that are not in it.
    notification_levels = models.JSONField(_("notification levels"), default=dict, db_default={}, blank=True)

    class Meta:
        db_table = "preference"
        verbose_name = _("preference")
        verbose_name_plural = _("preferences")

    def __str__(self) -> str:
        return self.user.username


class Notice(Titled):
    """A notification: `kind` and `name` identify the object, `event` is its new state, `link` the path of a page about
    it, where it has none of its own.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notices", verbose_name=_("user"))
    at = models.DateTimeField(_("at"), auto_now_add=True, db_index=True)
    kind = models.CharField(_("kind"), max_length=32)
    name = models.CharField(_("name"), max_length=64)
    event = models.CharField(_("event"), max_length=16)
    reason = ReasonField(_("reason"), blank=True)
    advice = ReasonField(_("diagnosis"), blank=True, default="", db_default="")  # what the failure means, where known
    link = models.TextField(_("link"), blank=True, default="", db_default="")
    read = models.BooleanField(_("read"), default=False)

    class Meta:
        db_table = "notice"
        verbose_name = _("notification")
        verbose_name_plural = _("notifications")
        ordering = ["-id"]
        indexes = [models.Index(fields=["user", "read", "-id"], name="notice_user")]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.event}"


class Delivery(models.Model):
    """The sending of a notice by e-mail or webhook, retried until it succeeds or the attempts are used up."""

    class Channel(models.TextChoices):
        MAIL = "mail", _("e-mail")
        WEBHOOK = "webhook", _("webhook")

    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.CharField(_("channel"), max_length=8, choices=Channel.choices)
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    not_before = models.DateTimeField(_("not before"))
    open = models.BooleanField(_("open"), default=True)
    error = ReasonField(_("error"), blank=True)

    class Meta:
        db_table = "delivery"
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        indexes = [
            models.Index(fields=["not_before"], condition=models.Q(open=True), name="delivery_due"),
        ]

    def __str__(self) -> str:
        return f"{self.channel} {self.notice_id}"
