"""The tables of a new database, at once: what 0001 to 0011 make one after the other in an older one."""

import uuid

import django.db.models.deletion
import django.db.models.functions.text
import django_fsm
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("aiops", "0001_initial"),
        ("aiops", "0002_logs"),
        ("aiops", "0003_alerts"),
        ("aiops", "0004_feedback_settled"),
        ("aiops", "0005_reading"),
        ("aiops", "0006_log_room"),
        ("aiops", "0007_page_words"),
        ("aiops", "0008_training_words"),
        ("aiops", "0009_attributes"),
        ("aiops", "0010_owners_alerts"),
        ("aiops", "0011_owners_labels"),
    ]

    initial = True

    dependencies = [
        ("accounts", "__first__"),
        ("resources", "0006_retention"),
    ]

    operations = [
        migrations.CreateModel(
            name="Template",
            fields=[
                (
                    "template_id",
                    models.CharField(max_length=40, primary_key=True, serialize=False, verbose_name="number"),
                ),
                ("text", models.TextField(verbose_name="template")),
                ("sample", models.TextField(blank=True, verbose_name="sample")),
                ("log_type", models.CharField(blank=True, max_length=40, verbose_name="kind")),
                ("first", models.BigIntegerField(verbose_name="first seen")),
                ("last", models.BigIntegerField(verbose_name="last changed")),
            ],
            options={
                "verbose_name": "template",
                "verbose_name_plural": "templates",
                "db_table": "aiops_template",
            },
        ),
        migrations.CreateModel(
            name="AlertRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, verbose_name="name")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("rate", "many anomalies"),
                            ("new_template", "a new template"),
                            ("missing", "no log lines"),
                            ("search", "many lines of a search"),
                            ("change", "a changed number of lines"),
                        ],
                        max_length=16,
                        verbose_name="kind",
                    ),
                ),
                ("cluster", models.CharField(blank=True, max_length=253, verbose_name="cluster")),
                ("namespace", models.CharField(blank=True, max_length=253, verbose_name="namespace")),
                ("deployment", models.CharField(blank=True, max_length=253, verbose_name="deployment")),
                ("threshold", models.PositiveIntegerField(default=10, verbose_name="threshold")),
                ("percent", models.PositiveIntegerField(default=100, verbose_name="change (percent)")),
                (
                    "direction",
                    models.CharField(
                        choices=[("up", "more lines"), ("down", "fewer lines"), ("both", "more or fewer lines")],
                        default="up",
                        max_length=4,
                        verbose_name="direction",
                    ),
                ),
                ("window_s", models.PositiveIntegerField(default=300, verbose_name="window (s)")),
                ("quiet_s", models.PositiveIntegerField(default=3600, verbose_name="cooldown (s)")),
                ("enabled", models.BooleanField(default=True, verbose_name="enabled")),
                ("muted_until", models.DateTimeField(blank=True, null=True, verbose_name="muted until")),
                ("created", models.DateTimeField(verbose_name="created")),
                ("checked", models.DateTimeField(verbose_name="checked")),
                ("next_check", models.DateTimeField(blank=True, null=True, verbose_name="next check")),
                ("last_fired", models.DateTimeField(blank=True, null=True, verbose_name="last fired")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
                (
                    "recipients",
                    models.ManyToManyField(
                        blank=True,
                        db_table="aiops_alert_recipient",
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="other recipients",
                    ),
                ),
            ],
            options={
                "verbose_name": "alert rule",
                "verbose_name_plural": "alert rules",
                "db_table": "aiops_alert_rule",
                "ordering": ["name", "id"],
                "constraints": [models.UniqueConstraint(fields=("owner", "name"), name="aiops_alert_rule_once")],
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(verbose_name="when")),
                ("words", models.TextField(verbose_name="what")),
                ("workload", models.CharField(max_length=800, verbose_name="workload")),
                ("count", models.BigIntegerField(verbose_name="count")),
                ("samples", models.JSONField(blank=True, default=list, verbose_name="sample lines")),
                ("link", models.TextField(blank=True, default="", verbose_name="link")),
                (
                    "rule",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alerts",
                        to="aiops.alertrule",
                        verbose_name="rule",
                    ),
                ),
            ],
            options={
                "verbose_name": "alert",
                "verbose_name_plural": "alerts",
                "db_table": "aiops_alert",
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="FollowedFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("path", models.CharField(max_length=500)),
                ("device", models.BigIntegerField()),
                ("inode", models.BigIntegerField()),
                ("head", models.CharField(max_length=32)),
                ("tail", models.CharField(blank=True, max_length=32)),
                ("generation", models.CharField(max_length=80)),
                ("offset", models.BigIntegerField(default=0)),
                ("seen", models.DateTimeField(auto_now=True)),
            ],
            options={
                "db_table": "aiops_followed_file",
                "constraints": [models.UniqueConstraint(fields=("device", "inode"), name="aiops_followed_once")],
            },
        ),
        migrations.CreateModel(
            name="LogLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("line_id", models.CharField(max_length=100, unique=True, verbose_name="id")),
                ("time", models.BigIntegerField(verbose_name="time")),
                ("cluster", models.CharField(max_length=253, verbose_name="cluster")),
                ("namespace", models.CharField(blank=True, max_length=253, verbose_name="namespace")),
                ("deployment", models.CharField(blank=True, max_length=253, verbose_name="deployment")),
                ("service", models.CharField(blank=True, max_length=253, verbose_name="service")),
                ("pod", models.CharField(blank=True, max_length=253, verbose_name="pod")),
                ("log_type", models.CharField(default="workload", max_length=40, verbose_name="kind")),
                ("log", models.TextField(verbose_name="line")),
                ("attributes", models.JSONField(blank=True, null=True, verbose_name="attributes")),
                ("masked", models.TextField(blank=True, verbose_name="masked line")),
                (
                    "level",
                    models.CharField(
                        blank=True,
                        choices=[("", "not judged yet"), ("Normal", "normal"), ("Anomaly", "anomaly")],
                        max_length=10,
                        verbose_name="verdict",
                    ),
                ),
                ("template", models.TextField(blank=True, verbose_name="template")),
                ("template_id", models.BigIntegerField(blank=True, null=True, verbose_name="template's number")),
                ("model", models.CharField(blank=True, max_length=20, verbose_name="judged by")),
                ("confidence", models.FloatField(blank=True, null=True, verbose_name="confidence")),
                ("unexpected", models.JSONField(blank=True, null=True, verbose_name="unexpected words")),
            ],
            options={
                "verbose_name": "log line",
                "verbose_name_plural": "log lines",
                "db_table": "aiops_log",
                "indexes": [
                    models.Index(fields=["-time", "-id"], name="aiops_log_time"),
                    models.Index(fields=["cluster", "namespace", "deployment", "-time"], name="aiops_log_workload"),
                    models.Index(
                        condition=models.Q(("level", "Anomaly")), fields=["-time"], name="aiops_log_anomalies"
                    ),
                    models.Index(
                        condition=models.Q(("level", ""), ("log_type", "workload")),
                        fields=["id"],
                        name="aiops_log_unjudged",
                    ),
                    models.Index(fields=["template_id", "-time"], name="aiops_log_template"),
                ],
            },
        ),
        migrations.CreateModel(
            name="SavedSearch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, verbose_name="name")),
                ("filters", models.JSONField(default=dict, verbose_name="filters")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="resources.tenant",
                        verbose_name="shared with the tenant",
                    ),
                ),
            ],
            options={
                "verbose_name": "saved search",
                "verbose_name_plural": "saved searches",
                "db_table": "aiops_search",
                "ordering": ["name", "id"],
                "constraints": [models.UniqueConstraint(fields=("owner", "name"), name="aiops_search_once")],
            },
        ),
        migrations.AddField(
            model_name="alertrule",
            name="search",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.RESTRICT,
                related_name="rules",
                to="aiops.savedsearch",
                verbose_name="saved search",
            ),
        ),
        migrations.CreateModel(
            name="TrainingRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uuid", models.UUIDField(default=uuid.uuid4, unique=True, verbose_name="request")),
                ("workloads", models.JSONField(blank=True, default=dict, verbose_name="workloads")),
                ("payload", models.JSONField(blank=True, default=dict, verbose_name="order")),
                ("by", models.CharField(blank=True, max_length=80, verbose_name="who")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[("training", "running"), ("completed", "completed"), ("error", "failed")],
                        default="training",
                        max_length=50,
                        protected=True,
                        verbose_name="state",
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("owner", models.CharField(blank=True, max_length=120, verbose_name="leased to")),
                ("lease_until", models.DateTimeField(blank=True, null=True, verbose_name="lease until")),
                ("heartbeat", models.DateTimeField(blank=True, null=True, verbose_name="last activity")),
                ("attempt", models.PositiveSmallIntegerField(default=0, verbose_name="attempt")),
                ("run_name", models.CharField(blank=True, max_length=100, verbose_name="run")),
                ("run_started", models.BooleanField(default=False)),
                ("gpu", models.PositiveSmallIntegerField(default=0, verbose_name="GPU")),
                ("reserved", models.BooleanField(default=False, verbose_name="resources reserved")),
                ("stage", models.CharField(blank=True, max_length=40, verbose_name="stage")),
                ("percent", models.PositiveSmallIntegerField(default=0, verbose_name="progress")),
                ("elapsed", models.PositiveIntegerField(default=0, verbose_name="elapsed (s)")),
                ("eta", models.PositiveIntegerField(blank=True, null=True, verbose_name="remaining (s)")),
                ("epoch", models.PositiveIntegerField(default=0, verbose_name="epoch")),
                ("epochs", models.PositiveIntegerField(default=0, verbose_name="epochs")),
                ("loss", models.FloatField(blank=True, null=True, verbose_name="loss")),
                ("losses", models.JSONField(blank=True, default=list, verbose_name="loss curve")),
                ("lines", models.PositiveBigIntegerField(default=0, verbose_name="lines")),
                ("job_end_sent", models.BooleanField(default=False)),
                ("announced", models.BooleanField(default=False)),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("ended", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
            ],
            options={
                "verbose_name": "training",
                "verbose_name_plural": "trainings",
                "db_table": "aiops_training_run",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(condition=models.Q(("state", "training")), fields=["id"], name="aiops_run_unsteady"),
                    models.Index(
                        condition=models.Q(
                            ("announced", False), models.Q(("run_name", ""), _negated=True), _connector="OR"
                        ),
                        fields=["id"],
                        name="aiops_run_untold",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["training", "completed", "error"])),
                        name="aiops_training_run_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("percent__lte", 100)), name="aiops_training_run_percent"
                    ),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="ModelVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.CharField(max_length=64, unique=True, verbose_name="version")),
                ("manifest", models.JSONField(blank=True, default=dict, verbose_name="manifest")),
                ("serving", models.BooleanField(default=False, verbose_name="serving")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("served", models.DateTimeField(blank=True, null=True, verbose_name="serving since")),
                (
                    "run",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="versions",
                        to="aiops.trainingrun",
                        verbose_name="training",
                    ),
                ),
            ],
            options={
                "verbose_name": "model version",
                "verbose_name_plural": "model versions",
                "db_table": "aiops_model_version",
                "ordering": ["-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("serving", True)), fields=("serving",), name="aiops_one_version_serves"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="WatchedWorkload",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.CharField(max_length=253, verbose_name="namespace")),
                ("deployment", models.CharField(max_length=253, verbose_name="deployment")),
                ("at", models.DateTimeField(auto_now_add=True, verbose_name="when")),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="who",
                    ),
                ),
            ],
            options={
                "verbose_name": "watched workload",
                "verbose_name_plural": "watched workloads",
                "db_table": "aiops_watched",
                "ordering": ["namespace", "deployment"],
                "constraints": [models.UniqueConstraint(fields=("namespace", "deployment"), name="aiops_watched_once")],
            },
        ),
        migrations.CreateModel(
            name="Workload",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster", models.CharField(max_length=253, verbose_name="cluster")),
                ("namespace", models.CharField(max_length=253, verbose_name="namespace")),
                ("deployment", models.CharField(max_length=253, verbose_name="deployment")),
                ("lines", models.BigIntegerField(default=0, verbose_name="lines")),
                ("last", models.BigIntegerField(default=0, verbose_name="last line")),
            ],
            options={
                "verbose_name": "workload",
                "verbose_name_plural": "workloads",
                "db_table": "aiops_workload",
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "namespace", "deployment"), name="aiops_workload_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Feedback",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "namespace",
                    models.CharField(blank=True, db_default="", default="", max_length=253, verbose_name="namespace"),
                ),
                ("masked", models.TextField(verbose_name="masked line")),
                ("sample", models.TextField(blank=True, verbose_name="line")),
                (
                    "level",
                    models.CharField(
                        choices=[("", "not judged yet"), ("Normal", "normal"), ("Anomaly", "anomaly")],
                        max_length=10,
                        verbose_name="verdict",
                    ),
                ),
                ("at", models.DateTimeField(auto_now=True, verbose_name="when")),
                ("settled", models.BooleanField(default=False, verbose_name="in the stored lines")),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="who",
                    ),
                ),
            ],
            options={
                "verbose_name": "feedback",
                "verbose_name_plural": "feedback",
                "db_table": "aiops_feedback",
                "indexes": [
                    models.Index(fields=["at"], name="aiops_feedback_at"),
                    models.Index(
                        condition=models.Q(("settled", False)), fields=["id"], name="aiops_feedback_unsettled"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        django.db.models.functions.text.MD5("masked"), models.F("namespace"), name="aiops_feedback_once"
                    )
                ],
            },
        ),
        migrations.RunSQL(
            sql="ALTER TABLE aiops_log SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)",
            reverse_sql="ALTER TABLE aiops_log RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
        ),
    ]
