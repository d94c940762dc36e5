"""Named tokens: each with a scope, and an end."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0008_second_factors"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="token",
            name="token_kind",
        ),
        migrations.AddField(
            model_name="token",
            name="address",
            field=models.GenericIPAddressField(null=True, verbose_name="from address"),
        ),
        migrations.AddField(
            model_name="token",
            name="expires",
            field=models.DateTimeField(null=True, verbose_name="expires"),
        ),
        migrations.AddField(
            model_name="token",
            name="scope",
            field=models.CharField(
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
        migrations.AddField(
            model_name="token",
            name="target",
            field=models.CharField(blank=True, max_length=100, verbose_name="only for"),
        ),
        migrations.AddField(
            model_name="token",
            name="warned",
            field=models.BooleanField(default=False),
        ),
        migrations.AlterField(
            model_name="token",
            name="kind",
            field=models.CharField(
                choices=[("user", "user"), ("service", "service"), ("named", "named")],
                default="user",
                max_length=8,
                verbose_name="kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="token",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "named")), fields=("user", "name"), name="token_name_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="token",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["user", "service", "named"])), name="token_kind"
            ),
        ),
        migrations.AddConstraint(
            model_name="token",
            constraint=models.CheckConstraint(
                condition=models.Q(("scope__in", ["full", "read", "submit", "dataset", "application"])),
                name="token_scope",
            ),
        ),
        migrations.AddConstraint(
            model_name="token",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind", "named"), ("scope", "full"), _connector="OR"), name="token_narrow"
            ),
        ),
        migrations.AddConstraint(
            model_name="token",
            constraint=models.CheckConstraint(
                condition=models.Q(("target", ""), ("scope__in", ["dataset", "application"]), _connector="XOR"),
                name="token_target",
            ),
        ),
    ]
