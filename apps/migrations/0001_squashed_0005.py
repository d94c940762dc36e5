"""The tables of a new database, at once: what 0001 to 0005 make one after the other in an older one."""

import django.db.models.deletion
import django_fsm
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("apps", "0001_initial"),
        ("apps", "0002_page_words"),
        ("apps", "0003_rollouts"),
        ("apps", "0004_stop_and_move"),
        ("apps", "0005_trash"),
    ]

    initial = True

    dependencies = [
        ("accounts", "__first__"),
        ("models_app", "0001_initial"),
        ("models_app", "0004_registry"),
        ("models_app", "0007_trash"),
        ("resources", "0001_initial"),
        ("resources", "0005_lending"),
    ]

    operations = [
        migrations.CreateModel(
            name="Application",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("trashed", models.DateTimeField(blank=True, null=True, verbose_name="in the trash since")),
                ("name", models.CharField(max_length=50, verbose_name="name")),
                ("gpu", models.PositiveSmallIntegerField(default=0, verbose_name="GPU")),
                ("cpu", models.FloatField(default=1, verbose_name="CPU")),
                ("ram", models.PositiveIntegerField(default=512, verbose_name="Memory (MiB)")),
                ("public", models.BooleanField(default=False, verbose_name="public")),
                ("port", models.PositiveIntegerField(unique=True, verbose_name="port")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[
                            ("creating", "starting"),
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
                ("reserved", models.BooleanField(default=True, verbose_name="resources reserved")),
                ("attempt", models.PositiveIntegerField(default=0, verbose_name="attempt")),
                ("failures", models.PositiveSmallIntegerField(default=0, verbose_name="failures")),
                ("run_name", models.CharField(blank=True, max_length=64, verbose_name="run")),
                ("ordered", models.DateTimeField(blank=True, null=True, verbose_name="run ordered")),
                ("not_before", models.DateTimeField(blank=True, null=True, verbose_name="not before")),
                ("ready_since", models.DateTimeField(blank=True, null=True, verbose_name="ready since")),
                ("address", models.CharField(blank=True, max_length=300, verbose_name="address")),
                ("slot", models.PositiveSmallIntegerField(db_default=0, default=0)),
                (
                    "may_restart",
                    models.BooleanField(
                        db_default=False, default=False, verbose_name="restart if there is no room for two"
                    ),
                ),
                ("stopped", models.BooleanField(db_default=False, default=False, verbose_name="stopped")),
                ("queued", models.DateTimeField(blank=True, null=True, verbose_name="queued since")),
                (
                    "served_as",
                    models.CharField(
                        blank=True, db_default="", default="", max_length=50, verbose_name="name in addresses"
                    ),
                ),
                ("resumes", models.BooleanField(db_default=False, default=False)),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                (
                    "alias",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="followers",
                        to="models_app.alias",
                        verbose_name="alias",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="served_by",
                        to="models_app.model",
                        verbose_name="model",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="applications",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="applications",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "application",
                "verbose_name_plural": "applications",
                "db_table": "app_group",
                "indexes": [
                    models.Index(fields=["state", "id"], name="application_unsteady"),
                    models.Index(fields=["user", "-id"], name="application_newest"),
                    models.Index(
                        condition=models.Q(("trashed__isnull", False)), fields=["trashed"], name="application_trash"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="application_name_once_per_user"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["creating", "ready", "error", "deleting"])),
                        name="application_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("port__gte", 31000), ("port__lt", 50001)), name="application_port_range"
                    ),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="AppRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, verbose_name="run")),
                ("model_name", models.CharField(max_length=50, verbose_name="model")),
                ("ordered", models.DateTimeField(verbose_name="ordered")),
                ("ready", models.DateTimeField(blank=True, null=True, verbose_name="ready since")),
                ("ended", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("failed", "failed"),
                            ("replaced", "replaced"),
                            ("restarted", "restarted"),
                            ("stopped", "stopped"),
                        ],
                        max_length=10,
                        verbose_name="outcome",
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                (
                    "app",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="runs",
                        to="apps.application",
                        verbose_name="application",
                    ),
                ),
            ],
            options={
                "verbose_name": "run of an application",
                "verbose_name_plural": "runs of applications",
                "db_table": "app_run",
                "indexes": [models.Index(fields=["app", "-id"], name="app_run_newest")],
                "constraints": [models.UniqueConstraint(fields=("app", "name"), name="app_run_once")],
            },
        ),
        migrations.CreateModel(
            name="Rollout",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting for resources"),
                            ("starting", "starting"),
                            ("restarting", "restarting"),
                            ("ending", "stopping the other run"),
                            ("failed", "failed"),
                        ],
                        max_length=10,
                        verbose_name="phase",
                    ),
                ),
                ("run_name", models.CharField(blank=True, max_length=64, verbose_name="run")),
                ("reserved", models.BooleanField(default=False, verbose_name="resources reserved")),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("ordered", models.DateTimeField(blank=True, null=True, verbose_name="run ordered")),
                ("not_before", models.DateTimeField(blank=True, null=True, verbose_name="not before")),
                (
                    "may_restart",
                    models.BooleanField(
                        db_default=False, default=False, verbose_name="restart if there is no room for two"
                    ),
                ),
                (
                    "by",
                    models.CharField(blank=True, db_default="", default="", max_length=80, verbose_name="requested by"),
                ),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                (
                    "app",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rollout",
                        to="apps.application",
                        verbose_name="application",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rollouts",
                        to="models_app.model",
                        verbose_name="model",
                    ),
                ),
            ],
            options={
                "verbose_name": "rollout",
                "verbose_name_plural": "rollouts",
                "db_table": "app_rollout",
            },
        ),
    ]
