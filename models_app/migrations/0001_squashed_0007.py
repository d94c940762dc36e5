"""The tables of a new database, at once: what 0001 to 0007 make one after the other in an older one."""

import uuid

import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
import django_fsm
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("models_app", "0001_initial"),
        ("models_app", "0002_notes"),
        ("models_app", "0003_page_words"),
        ("models_app", "0004_registry"),
        ("models_app", "0005_imported"),
        ("models_app", "0006_sealed_webhooks"),
        ("models_app", "0007_trash"),
    ]

    initial = True

    dependencies = [
        ("accounts", "__first__"),
        ("jobs", "0014_code"),
        ("resources", "0001_initial"),
        ("resources", "0005_lending"),
    ]

    operations = [
        migrations.CreateModel(
            name="Model",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("trashed", models.DateTimeField(blank=True, null=True, verbose_name="in the trash since")),
                ("name", models.CharField(max_length=50, verbose_name="name")),
                ("src", models.CharField(max_length=500, verbose_name="source")),
                ("size", models.BigIntegerField(verbose_name="size")),
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
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("reserved", models.BooleanField(default=True, verbose_name="space reserved")),
                ("copied", models.BooleanField(default=False, verbose_name="copied")),
                ("run_name", models.CharField(blank=True, max_length=64, verbose_name="run")),
                ("run_ordered", models.DateTimeField(blank=True, null=True, verbose_name="check started")),
                ("format", models.CharField(blank=True, max_length=20, verbose_name="format")),
                ("signature", models.JSONField(blank=True, default=dict, verbose_name="inputs and outputs")),
                ("checksums", models.JSONField(blank=True, default=dict, verbose_name="checksums")),
                ("lineage", models.JSONField(blank=True, default=dict, verbose_name="lineage")),
                ("notes", models.TextField(blank=True, verbose_name="notes")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="models",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="models",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "model",
                "verbose_name_plural": "models",
                "db_table": "model",
                "indexes": [
                    models.Index(fields=["state", "id"], name="model_unsteady"),
                    models.Index(fields=["user", "-id"], name="model_newest"),
                    models.Index(
                        condition=models.Q(("trashed__isnull", False)), fields=["trashed"], name="model_trash"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="model_name_once_per_user"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["creating", "ready", "error", "deleting"])),
                        name="model_state",
                    ),
                    models.CheckConstraint(condition=models.Q(("size__gte", 0)), name="model_size"),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="RegisteredModel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=256, verbose_name="name")),
                ("description", models.TextField(blank=True, db_default="", default="", verbose_name="description")),
                ("tags", models.JSONField(blank=True, db_default={}, default=dict, verbose_name="tags")),
                ("last", models.PositiveIntegerField(db_default=0, default=0, verbose_name="highest version")),
                (
                    "created",
                    models.DateTimeField(
                        auto_now_add=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="created"
                    ),
                ),
                (
                    "updated",
                    models.DateTimeField(
                        auto_now=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="changed"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="registered",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "registered model",
                "verbose_name_plural": "registered models",
                "db_table": "registered_model",
                "indexes": [
                    models.Index(fields=["user", "-updated"], name="registered_model_newest"),
                    django.contrib.postgres.indexes.GinIndex(fields=["tags"], name="registered_model_tags"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="registered_model_name_once_per_user")
                ],
            },
        ),
        migrations.CreateModel(
            name="ModelVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(verbose_name="version")),
                (
                    "source",
                    models.CharField(blank=True, db_default="", default="", max_length=2000, verbose_name="source"),
                ),
                (
                    "run_id",
                    models.CharField(blank=True, db_default="", default="", max_length=64, verbose_name="run id"),
                ),
                (
                    "run_link",
                    models.CharField(
                        blank=True, db_default="", default="", max_length=2000, verbose_name="link to the run"
                    ),
                ),
                (
                    "logged_model",
                    models.CharField(blank=True, db_default="", default="", max_length=64, verbose_name="logged model"),
                ),
                ("owns_model", models.BooleanField(db_default=False, default=False)),
                (
                    "stage",
                    models.CharField(
                        choices=[
                            ("None", "None"),
                            ("Staging", "Staging"),
                            ("Production", "Production"),
                            ("Archived", "Archived"),
                        ],
                        db_default="None",
                        default="None",
                        max_length=10,
                        verbose_name="stage",
                    ),
                ),
                ("description", models.TextField(blank=True, db_default="", default="", verbose_name="description")),
                ("tags", models.JSONField(blank=True, db_default={}, default=dict, verbose_name="tags")),
                (
                    "created",
                    models.DateTimeField(
                        auto_now_add=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="created"
                    ),
                ),
                (
                    "updated",
                    models.DateTimeField(
                        auto_now=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="changed"
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="versions",
                        to="jobs.job",
                        verbose_name="run",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="versions",
                        to="models_app.model",
                        verbose_name="model",
                    ),
                ),
                (
                    "registered",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="models_app.registeredmodel",
                        verbose_name="registered model",
                    ),
                ),
            ],
            options={
                "verbose_name": "model version",
                "verbose_name_plural": "model versions",
                "db_table": "model_version",
                "indexes": [
                    models.Index(fields=["registered", "stage", "-number"], name="model_version_latest"),
                    models.Index(
                        condition=models.Q(("run_id", ""), _negated=True),
                        fields=["run_id"],
                        name="model_version_of_run",
                    ),
                    django.contrib.postgres.indexes.GinIndex(fields=["tags"], name="model_version_tags"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("registered", "number"), name="model_version_number_once"),
                    models.CheckConstraint(
                        condition=models.Q(("stage__in", ["None", "Staging", "Production", "Archived"])),
                        name="model_version_stage",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Alias",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                (
                    "created",
                    models.DateTimeField(
                        auto_now_add=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="created"
                    ),
                ),
                (
                    "updated",
                    models.DateTimeField(
                        auto_now=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="changed"
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="aliases",
                        to="models_app.modelversion",
                        verbose_name="version",
                    ),
                ),
                (
                    "registered",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="aliases",
                        to="models_app.registeredmodel",
                        verbose_name="registered model",
                    ),
                ),
            ],
            options={
                "verbose_name": "alias",
                "verbose_name_plural": "aliases",
                "db_table": "model_alias",
                "constraints": [models.UniqueConstraint(fields=("registered", "name"), name="model_alias_name_once")],
            },
        ),
        migrations.CreateModel(
            name="RegistryWebhook",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4, editable=False, unique=True, verbose_name="id")),
                ("name", models.CharField(max_length=256, verbose_name="name")),
                ("description", models.TextField(blank=True, db_default="", default="", verbose_name="description")),
                ("url", models.CharField(max_length=500, verbose_name="address")),
                ("events", models.JSONField(default=list, verbose_name="events")),
                ("secret", models.TextField(blank=True, db_default="", default="")),
                ("active", models.BooleanField(db_default=True, default=True, verbose_name="active")),
                (
                    "created",
                    models.DateTimeField(
                        auto_now_add=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="created"
                    ),
                ),
                (
                    "updated",
                    models.DateTimeField(
                        auto_now=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="changed"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="registry_webhooks",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook of the registry",
                "verbose_name_plural": "webhooks of the registry",
                "db_table": "registry_webhook",
            },
        ),
        migrations.CreateModel(
            name="RegistryDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4, editable=False, unique=True, verbose_name="id")),
                ("event", models.CharField(max_length=60, verbose_name="event")),
                ("data", models.JSONField(verbose_name="data")),
                ("open", models.BooleanField(db_default=True, default=True, verbose_name="open")),
                ("attempts", models.PositiveSmallIntegerField(db_default=0, default=0, verbose_name="attempts")),
                (
                    "not_before",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="not before"
                    ),
                ),
                ("problem", models.TextField(blank=True, db_default="", default="", verbose_name="problem")),
                (
                    "created",
                    models.DateTimeField(
                        auto_now_add=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="created"
                    ),
                ),
                (
                    "webhook",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="models_app.registrywebhook",
                        verbose_name="webhook",
                    ),
                ),
            ],
            options={
                "verbose_name": "delivery of the registry",
                "verbose_name_plural": "deliveries of the registry",
                "db_table": "registry_delivery",
                "indexes": [
                    models.Index(
                        condition=models.Q(("open", True)), fields=["not_before"], name="registry_delivery_due"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Imported",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=500)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("experiment", "Experiment"),
                            ("run", "Run"),
                            ("logged", "Logged"),
                            ("registered", "Registered"),
                            ("version", "Version"),
                        ],
                        max_length=10,
                    ),
                ),
                ("key", models.CharField(max_length=300)),
                ("object_id", models.BigIntegerField()),
                ("mark", models.CharField(blank=True, db_default="", default="", max_length=64)),
                ("counts", models.JSONField(blank=True, db_default={}, default=dict)),
                ("at", models.DateTimeField(auto_now=True, db_default=django.db.models.functions.datetime.Now())),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "mlflow_import",
                "constraints": [
                    models.UniqueConstraint(fields=("user", "source", "kind", "key"), name="mlflow_import_once"),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["experiment", "run", "logged", "registered", "version"])),
                        name="mlflow_import_kind",
                    ),
                ],
            },
        ),
    ]
