"""The tables of a new database, at once: what 0001 to 0012 make one after the other in an older one."""

import django.db.models.deletion
import django.db.models.functions.datetime
import django_fsm
from django.conf import settings
from django.db import migrations, models

import accounts.models.token


class Migration(migrations.Migration):
    replaces = [
        ("accounts", "0001_initial"),
        ("accounts", "0002_notices"),
        ("accounts", "0003_page_words"),
        ("accounts", "0004_login_limits"),
        ("accounts", "0005_doctor"),
        ("accounts", "0006_sharing"),
        ("accounts", "0007_identities"),
        ("accounts", "0008_second_factors"),
        ("accounts", "0009_named_tokens"),
        ("accounts", "0010_service_accounts"),
        ("accounts", "0011_memberships"),
        ("accounts", "0012_notice_link"),
    ]

    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("resources", "0001_initial"),
        ("resources", "0003_network"),
        ("resources", "0005_lending"),
    ]

    operations = [
        migrations.CreateModel(
            name="Throttle",
            fields=[
                ("key", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("count", models.FloatField()),
                ("at", models.DateTimeField(db_index=True)),
                ("until", models.DateTimeField()),
            ],
            options={
                "db_table": "throttle",
            },
        ),
        migrations.CreateModel(
            name="User",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("password", models.CharField(max_length=128, verbose_name="password")),
                ("last_login", models.DateTimeField(blank=True, null=True, verbose_name="last login")),
                (
                    "is_superuser",
                    models.BooleanField(
                        default=False,
                        help_text="Designates that this user has all permissions without explicitly assigning them.",
                        verbose_name="superuser status",
                    ),
                ),
                ("username", models.CharField(max_length=50, unique=True, verbose_name="username")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[("NotActive", "not active"), ("Actived", "active")],
                        default="NotActive",
                        max_length=50,
                        protected=True,
                        verbose_name="state",
                    ),
                ),
                ("is_staff", models.BooleanField(default=False, verbose_name="administrator")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                (
                    "groups",
                    models.ManyToManyField(
                        blank=True,
                        help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.group",
                        verbose_name="groups",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="service_accounts",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="users",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
                (
                    "user_permissions",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Specific permissions for this user.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.permission",
                        verbose_name="user permissions",
                    ),
                ),
            ],
            options={
                "verbose_name": "user",
                "verbose_name_plural": "users",
                "db_table": "user",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["NotActive", "Actived"])), name="user_state"
                    )
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="Factor",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("app", "authenticator app"), ("passkey", "passkey")],
                        max_length=8,
                        verbose_name="kind",
                    ),
                ),
                ("name", models.CharField(max_length=50, verbose_name="name")),
                ("credential", models.CharField(max_length=2046, null=True, unique=True)),
                ("secret", models.TextField()),
                ("counter", models.BigIntegerField(default=0)),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("used", models.DateTimeField(null=True, verbose_name="last used")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="factors",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "db_table": "factor",
            },
        ),
        migrations.CreateModel(
            name="Identity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("issuer", models.CharField(max_length=500, verbose_name="issuer")),
                ("subject", models.CharField(max_length=255, verbose_name="subject")),
                ("name", models.CharField(blank=True, max_length=200, verbose_name="name")),
                ("created_user", models.BooleanField(default=False)),
                ("staff", models.BooleanField(default=False)),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("used", models.DateTimeField(null=True, verbose_name="last used")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="identities",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "db_table": "identity",
                "constraints": [models.UniqueConstraint(fields=("issuer", "subject"), name="identity_once")],
            },
        ),
        migrations.CreateModel(
            name="LoginAddress",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("network", models.CharField(max_length=50)),
                ("succeeded", models.DateTimeField(null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("failed", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="login_addresses",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "login_address",
                "constraints": [models.UniqueConstraint(fields=("user", "network"), name="login_address_once")],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[("viewer", "viewer"), ("member", "member"), ("admin", "tenant administrator")],
                        default="member",
                        max_length=10,
                        verbose_name="role",
                    ),
                ),
                ("by_groups", models.BooleanField(db_default=False, default=False, verbose_name="given by groups")),
                (
                    "created",
                    models.DateTimeField(
                        auto_now_add=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="since"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "member",
                "verbose_name_plural": "members",
                "db_table": "tenant_member",
                "indexes": [models.Index(fields=["tenant", "role"], name="tenant_member_role_of")],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "tenant"), name="tenant_member_once"),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ["viewer", "member", "admin"])), name="tenant_member_role"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(auto_now_add=True, db_index=True, verbose_name="at")),
                ("kind", models.CharField(max_length=32, verbose_name="kind")),
                ("name", models.CharField(max_length=64, verbose_name="name")),
                ("event", models.CharField(max_length=16, verbose_name="event")),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("advice", models.TextField(blank=True, db_default="", default="", verbose_name="diagnosis")),
                ("link", models.TextField(blank=True, db_default="", default="", verbose_name="link")),
                ("read", models.BooleanField(default=False, verbose_name="read")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notices",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "notification",
                "verbose_name_plural": "notifications",
                "db_table": "notice",
                "ordering": ["-id"],
                "indexes": [models.Index(fields=["user", "read", "-id"], name="notice_user")],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "channel",
                    models.CharField(
                        choices=[("mail", "e-mail"), ("webhook", "webhook")], max_length=8, verbose_name="channel"
                    ),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0, verbose_name="attempts")),
                ("not_before", models.DateTimeField(verbose_name="not before")),
                ("open", models.BooleanField(default=True, verbose_name="open")),
                ("error", models.TextField(blank=True, verbose_name="error")),
                (
                    "notice",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="deliveries", to="accounts.notice"
                    ),
                ),
            ],
            options={
                "verbose_name": "delivery",
                "verbose_name_plural": "deliveries",
                "db_table": "delivery",
                "indexes": [
                    models.Index(condition=models.Q(("open", True)), fields=["not_before"], name="delivery_due")
                ],
            },
        ),
        migrations.CreateModel(
            name="Preference",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("language", models.CharField(blank=True, max_length=10, verbose_name="language")),
                ("theme", models.CharField(blank=True, max_length=5, verbose_name="theme")),
                ("email", models.EmailField(blank=True, max_length=254, verbose_name="e-mail")),
                ("webhook", models.CharField(blank=True, max_length=500, verbose_name="webhook")),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="preference",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "preference",
                "verbose_name_plural": "preferences",
                "db_table": "preference",
            },
        ),
        migrations.CreateModel(
            name="RecoveryCode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="recovery_codes",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "recovery_code",
                "constraints": [models.UniqueConstraint(fields=("user", "digest"), name="recovery_code_once")],
            },
        ),
        migrations.CreateModel(
            name="Share",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=16, verbose_name="kind")),
                ("object_id", models.BigIntegerField(verbose_name="object")),
                ("name", models.CharField(max_length=500, verbose_name="name")),
                (
                    "audience",
                    models.CharField(
                        choices=[("user", "user"), ("tenant", "tenant"), ("link", "link")],
                        max_length=8,
                        verbose_name="shared with",
                    ),
                ),
                ("token_hash", models.CharField(blank=True, max_length=64)),
                (
                    "right",
                    models.CharField(
                        choices=[("read", "read only"), ("clone", "read and clone")],
                        default="read",
                        max_length=8,
                        verbose_name="right",
                    ),
                ),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("expires", models.DateTimeField(blank=True, null=True, verbose_name="ends")),
                ("revoked", models.DateTimeField(blank=True, null=True, verbose_name="revoked")),
                ("used", models.DateTimeField(blank=True, null=True, verbose_name="last used")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="shares",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="shared_with_me",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "share",
                "verbose_name_plural": "shares",
                "db_table": "share",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["kind", "object_id"], name="share_object"),
                    models.Index(fields=["owner", "-id"], name="share_owner"),
                    models.Index(condition=models.Q(("revoked", None)), fields=["user", "-id"], name="share_user"),
                    models.Index(condition=models.Q(("revoked", None)), fields=["tenant", "-id"], name="share_tenant"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("audience__in", ["user", "tenant", "link"])), name="share_audience"
                    ),
                    models.CheckConstraint(condition=models.Q(("right__in", ["read", "clone"])), name="share_right"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("audience", "user"), ("tenant", None), ("token_hash", ""), ("user__isnull", False)
                            ),
                            models.Q(
                                ("audience", "tenant"), ("tenant__isnull", False), ("token_hash", ""), ("user", None)
                            ),
                            models.Q(
                                ("audience", "link"),
                                ("tenant", None),
                                ("user", None),
                                models.Q(("token_hash", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="share_with_one",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("revoked", None)),
                        fields=("kind", "object_id", "user"),
                        name="share_user_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("revoked", None)),
                        fields=("kind", "object_id", "tenant"),
                        name="share_tenant_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("token_hash", ""), _negated=True),
                        fields=("token_hash",),
                        name="share_token_once",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Token",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("user", "user"), ("service", "service"), ("named", "named")],
                        default="user",
                        max_length=8,
                        verbose_name="kind",
                    ),
                ),
                ("name", models.CharField(blank=True, max_length=50, verbose_name="name")),
                ("nonce", models.CharField(default=accounts.models.token.new_nonce, max_length=32)),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("full", "everything, except for the account and its tokens"),
                            ("read", "read, and change nothing"),
                            ("submit", "read, upload data, submit and cancel jobs"),
                            ("dataset", "read and write the files of one dataset"),
                            ("application", "call one application"),
                        ],
                        default="full",
                        max_length=12,
                        verbose_name="scope",
                    ),
                ),
                ("target", models.CharField(blank=True, max_length=100, verbose_name="only for")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("rotated", models.DateTimeField(null=True, verbose_name="rotated")),
                ("expires", models.DateTimeField(null=True, verbose_name="expires")),
                ("warned", models.BooleanField(default=False)),
                ("used", models.DateTimeField(null=True, verbose_name="last used")),
                ("address", models.GenericIPAddressField(null=True, verbose_name="from address")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tokens",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "token",
                "verbose_name_plural": "tokens",
                "db_table": "token",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "user")), fields=("user",), name="token_one_user_token_each"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "named")), fields=("user", "name"), name="token_name_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["user", "service", "named"])), name="token_kind"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("scope__in", ["full", "read", "submit", "dataset", "application"])),
                        name="token_scope",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind", "named"), ("scope", "full"), _connector="OR"), name="token_narrow"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("target", ""), ("scope__in", ["dataset", "application"]), _connector="XOR"),
                        name="token_target",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Visit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("session_key", models.CharField(max_length=40, unique=True)),
                ("at", models.DateTimeField(auto_now_add=True, verbose_name="since")),
                ("agent", models.CharField(blank=True, max_length=200, verbose_name="browser")),
                ("address", models.CharField(blank=True, max_length=50, verbose_name="address")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="visits",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "db_table": "visit",
            },
        ),
    ]
