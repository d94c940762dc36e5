"""The tables of a new database, at once: what 0001 to 0006 make one after the other in an older one."""

import django.db.models.deletion
import django.utils.timezone
import django_fsm
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("datasets", "0001_initial"),
        ("datasets", "0002_lock"),
        ("datasets", "0003_page_words"),
        ("datasets", "0004_trash"),
        ("datasets", "0005_notes"),
        ("datasets", "0006_versions"),
    ]

    initial = True

    dependencies = [
        ("accounts", "__first__"),
        ("resources", "0001_initial"),
        ("resources", "0005_lending"),
    ]

    operations = [
        migrations.CreateModel(
            name="Dataset",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("trashed", models.DateTimeField(blank=True, null=True, verbose_name="in the trash since")),
                ("name", models.CharField(max_length=50, verbose_name="name")),
                ("size", models.BigIntegerField(verbose_name="size")),
                ("stored", models.BigIntegerField(default=0, verbose_name="stored")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[
                            ("creating", "creating"),
                            ("ready", "ready"),
                            ("error", "failed"),
                            ("deleting", "deleting"),
                        ],
                        default="creating",
                        max_length=50,
                        protected=True,
                        verbose_name="state",
                    ),
                ),
                ("progress", models.PositiveSmallIntegerField(default=0, verbose_name="progress")),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("touched", models.DateTimeField(default=django.utils.timezone.now, verbose_name="last activity")),
                ("notes", models.TextField(blank=True, db_default="", default="", verbose_name="notes")),
                ("version", models.PositiveIntegerField(db_default=1, default=1, verbose_name="version")),
                (
                    "incoming",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="published_to",
                        to="datasets.dataset",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="datasets",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="datasets",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "dataset",
                "verbose_name_plural": "datasets",
                "db_table": "dataset",
                "indexes": [
                    models.Index(fields=["state", "touched"], name="dataset_unsteady"),
                    models.Index(
                        condition=models.Q(("trashed__isnull", False)), fields=["trashed"], name="dataset_trash"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="dataset_name_once_per_user"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["creating", "ready", "error", "deleting"])),
                        name="dataset_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("size__gte", 0), ("stored__gte", 0)), name="dataset_sizes"
                    ),
                    models.CheckConstraint(condition=models.Q(("progress__lte", 100)), name="dataset_progress"),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="Lock",
            fields=[
                ("token", models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name="token")),
                ("dataset", models.CharField(max_length=50, verbose_name="dataset")),
                ("path", models.TextField(blank=True, verbose_name="path")),
                ("holder", models.CharField(max_length=150, verbose_name="holder")),
                ("exclusive", models.BooleanField(verbose_name="exclusive")),
                ("deep", models.BooleanField(verbose_name="including everything in it")),
                ("owner", models.TextField(blank=True, verbose_name="as reported by the client")),
                ("expires", models.DateTimeField(verbose_name="ends")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "verbose_name": "lock",
                "verbose_name_plural": "locks",
                "db_table": "dataset_lock",
                "indexes": [models.Index(fields=["user", "dataset"], name="dataset_lock_place")],
            },
        ),
        migrations.CreateModel(
            name="Version",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(verbose_name="number")),
                ("sha256", models.CharField(blank=True, default="", max_length=64, verbose_name="SHA-256")),
                ("files", models.BigIntegerField(null=True, verbose_name="files")),
                ("size", models.BigIntegerField(verbose_name="size")),
                ("notes", models.TextField(blank=True, default="", verbose_name="notes")),
                ("by", models.CharField(max_length=80, verbose_name="who")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("asked", models.DateTimeField(null=True)),
                ("erased", models.BooleanField(default=False)),
                (
                    "dataset",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="datasets.dataset",
                        verbose_name="dataset",
                    ),
                ),
            ],
            options={
                "verbose_name": "version",
                "verbose_name_plural": "versions",
                "db_table": "dataset_version",
                "indexes": [
                    models.Index(condition=models.Q(("sha256", "")), fields=["asked"], name="dataset_version_unsummed"),
                    models.Index(condition=models.Q(("erased", True)), fields=["id"], name="dataset_version_erased"),
                ],
                "constraints": [models.UniqueConstraint(fields=("dataset", "number"), name="dataset_version_number")],
            },
        ),
    ]
