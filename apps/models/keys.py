"""The keys of an application's callers, and how often each was used."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from accounts.models import new_nonce

from .application import Application


class AppKey(models.Model):
    """What one caller of an application authenticates with. Written only through apps.keys, which says how it is
    derived: the key itself is never stored.
    """

    app = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="keys", verbose_name=_("application"))
    name = models.CharField(_("name"), max_length=50)
    nonce = models.CharField(max_length=32, default=new_nonce)
    by = models.CharField(_("created by"), max_length=80, blank=True)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    expires = models.DateTimeField(_("expires"), null=True, blank=True)
    rate = models.PositiveIntegerField(_("requests per minute"), null=True, blank=True)  # None: no limit
    day_tokens = models.PositiveBigIntegerField(_("tokens per day"), null=True, blank=True)  # of a language model
    used = models.DateTimeField(_("last used"), null=True, blank=True)  # to within keys.CACHE_S
    address = models.GenericIPAddressField(_("from address"), null=True, blank=True)  # of the last use
    warned = models.BooleanField(default=False, db_default=False)  # of its end

    class Meta:
        db_table = "app_key"
        verbose_name = _("key of an application")
        verbose_name_plural = _("keys of applications")
        constraints = [models.UniqueConstraint(fields=["app", "name"], name="app_key_name_once")]

    def __str__(self) -> str:
        return f"{self.app}: {self.name}"


class AppKeyUse(models.Model):
    """How many requests were made with a key on one day (UTC), and the tokens of a language model in them. Written only
    through apps.keys and apps.key_tokens.
    """

    key = models.ForeignKey(AppKey, on_delete=models.CASCADE, related_name="uses", verbose_name=_("key"))
    day = models.DateField(_("day"))
    requests = models.PositiveBigIntegerField(_("requests"))
    prompt_tokens = models.PositiveBigIntegerField(_("prompt tokens"), default=0, db_default=0)
    completion_tokens = models.PositiveBigIntegerField(_("completion tokens"), default=0, db_default=0)

    class Meta:
        db_table = "app_key_use"
        verbose_name = _("use of a key")
        verbose_name_plural = _("uses of keys")
        constraints = [models.UniqueConstraint(fields=["key", "day"], name="app_key_use_once_a_day")]

    def __str__(self) -> str:
        return f"{self.key}, {self.day}"
