"""Sessions, identities at providers, second factors, and what is counted of log-ins."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .user import User


class Visit(models.Model):
    """A log-in in a browser. Links Django's session to its user, which the session's own row does not."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="visits", verbose_name=_("user"))
    session_key = models.CharField(max_length=40, unique=True)
    at = models.DateTimeField(_("since"), auto_now_add=True)
    agent = models.CharField(_("browser"), max_length=200, blank=True)
    address = models.CharField(_("address"), max_length=50, blank=True)

    class Meta:
        db_table = "visit"
        verbose_name = _("session")
        verbose_name_plural = _("sessions")

    def __str__(self) -> str:
        return f"{self.user_id} {self.at}"


class Identity(models.Model):
    """An account at a provider (an OpenID Connect issuer, a directory) by which the user logs in: accounts.signin."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities", verbose_name=_("user"))
    issuer = models.CharField(_("issuer"), max_length=500)
    subject = models.CharField(_("subject"), max_length=255)
    name = models.CharField(_("name"), max_length=200, blank=True)
    created_user = models.BooleanField(default=False)  # else its owner has connected it
    staff = models.BooleanField(default=False)  # administrator because of the provider's groups
    created = models.DateTimeField(_("created"), auto_now_add=True)
    used = models.DateTimeField(_("last used"), null=True)

    class Meta:
        db_table = "identity"
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="identity_once")]

    def __str__(self) -> str:
        return f"{self.issuer} {self.name}"


class Factor(models.Model):
    """A second factor of a user: an authenticator app or a passkey. See accounts.signin.factors."""

    class Kind(models.TextChoices):
        APP = "app", _("authenticator app")
        PASSKEY = "passkey", _("passkey")

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="factors", verbose_name=_("user"))
    kind = models.CharField(_("kind"), max_length=8, choices=Kind.choices)
    name = models.CharField(_("name"), max_length=50)
    credential = models.CharField(max_length=2046, null=True, unique=True)  # the passkey's id, in hex
    secret = models.TextField()  # the app's key, encrypted; the passkey's public key
    counter = models.BigIntegerField(default=0)  # the last time step, or the passkey's own counter
    created = models.DateTimeField(_("created"), auto_now_add=True)
    used = models.DateTimeField(_("last used"), null=True)

    class Meta:
        db_table = "factor"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class RecoveryCode(models.Model):
    """A code that replaces a second factor once; only its digest is kept."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64)

    class Meta:
        db_table = "recovery_code"
        constraints = [models.UniqueConstraint(fields=["user", "digest"], name="recovery_code_once")]

    def __str__(self) -> str:
        return str(self.user_id)


class LoginAddress(models.Model):
    """A network from which a user has logged in, or from which others have tried to: see accounts.logins."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="login_addresses")
    network = models.CharField(max_length=50)
    succeeded = models.DateTimeField(null=True)  # the last log-in
    failures = models.PositiveIntegerField(default=0)  # that the user has not been notified of
    failed = models.DateTimeField(null=True)

    class Meta:
        db_table = "login_address"
        constraints = [models.UniqueConstraint(fields=["user", "network"], name="login_address_once")]

    def __str__(self) -> str:
        return f"{self.user_id} {self.network}"


class Throttle(models.Model):
    """Attempts counted by one limit: see accounts.throttle."""

    key = models.CharField(max_length=32, primary_key=True)
    count = models.FloatField()
    at = models.DateTimeField(db_index=True)
    until = models.DateTimeField()

    class Meta:
        db_table = "throttle"

    def __str__(self) -> str:
        return self.key
