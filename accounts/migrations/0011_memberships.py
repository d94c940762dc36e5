"""Members of tenants: each user becomes a member of the tenant that they are in."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

FILL = """
INSERT INTO tenant_member (user_id, tenant_id, role)
SELECT id, tenant_id, 'member' FROM "user" WHERE owner_id IS NULL
ON CONFLICT DO NOTHING
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0010_service_accounts"),
        ("resources", "0005_lending"),
    ]

    operations = [
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
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
