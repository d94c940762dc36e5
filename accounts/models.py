"""User and Token, written only through accounts.lifecycle; preferences, notices and their deliveries, sessions.

User:
    NotActive --activate-->   Actived
    Actived   --deregister--> NotActive
"""

from __future__ import annotations

import secrets

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.utils.translation import gettext_lazy as _
from django_fsm import ConcurrentTransitionMixin, FSMField, transition

from kernel.messages import ReasonField
from kernel.models import refused


class State(models.TextChoices):
    NOT_ACTIVE = "NotActive", _("not active")
    ACTIVED = "Actived", _("active")


class UserManager(BaseUserManager):
    def get_by_natural_key(self, username):
        return self.get(username=username)


class User(ConcurrentTransitionMixin, AbstractBaseUser, PermissionsMixin):
    """An account. Its username stays taken after deactivation. `is_active` follows from the state."""

    username = models.CharField(_("username"), max_length=50, unique=True)
    state = FSMField(_("state"), default=State.NOT_ACTIVE, choices=State.choices, protected=True)
    is_staff = models.BooleanField(_("administrator"), default=False)
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


class Preference(models.Model):
    """A user's settings. Empty means the default: the browser's language, the system's theme, no notices sent."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="preference", verbose_name=_("user"))
    language = models.CharField(_("language"), max_length=10, blank=True)
    theme = models.CharField(_("theme"), max_length=5, blank=True)
    email = models.EmailField(_("e-mail"), blank=True)
    webhook = models.CharField(_("webhook"), max_length=500, blank=True)

    class Meta:
        db_table = "preference"
        verbose_name = _("preference")
        verbose_name_plural = _("preferences")

    def __str__(self) -> str:
        return self.user.username


class Notice(models.Model):
    """A notification: `kind` and `name` identify the object, `event` is its new state."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notices", verbose_name=_("user"))
    at = models.DateTimeField(_("at"), auto_now_add=True, db_index=True)
    kind = models.CharField(_("kind"), max_length=32)
    name = models.CharField(_("name"), max_length=64)
    event = models.CharField(_("event"), max_length=16)
    reason = ReasonField(_("reason"), blank=True)
    advice = ReasonField(_("diagnosis"), blank=True, default="", db_default="")  # what the failure means, where known
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
    failures = models.PositiveIntegerField(default=0)  # that the user has not been told of
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
