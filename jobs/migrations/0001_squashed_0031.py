"""The tables of a new database, at once: what 0001 to 0031 make one after the other in an older one."""

import uuid

import django.contrib.postgres.functions
import django.contrib.postgres.indexes
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.lookups
import django_fsm
from django.conf import settings
from django.db import migrations, models

import jobs.models.artifacts
import jobs.models.job


class Migration(migrations.Migration):
    replaces = [
        ("jobs", "0001_initial"),
        ("jobs", "0002_values"),
        ("jobs", "0003_workers"),
        ("jobs", "0004_metrics_by_time"),
        ("jobs", "0005_page_words"),
        ("jobs", "0006_network"),
        ("jobs", "0007_reporting_limits"),
        ("jobs", "0008_doctor"),
        ("jobs", "0009_projects_and_summaries"),
        ("jobs", "0010_summaries_of_jobs"),
        ("jobs", "0011_progress_source"),
        ("jobs", "0012_metric_blocks"),
        ("jobs", "0013_fewer_indexes"),
        ("jobs", "0014_code"),
        ("jobs", "0015_mlflow"),
        ("jobs", "0016_display_state"),
        ("jobs", "0017_comparisons"),
        ("jobs", "0018_colours"),
        ("jobs", "0019_artifacts"),
        ("jobs", "0020_logged_models"),
        ("jobs", "0021_limits"),
        ("jobs", "0022_rule_words"),
        ("jobs", "0023_value_index"),
        ("jobs", "0024_idle"),
        ("jobs", "0025_preemption"),
        ("jobs", "0026_inputs"),
        ("jobs", "0027_traceparent"),
        ("jobs", "0028_value_job"),
        ("jobs", "0029_footprint"),
        ("jobs", "0030_retention"),
        ("jobs", "0031_packages"),
    ]

    initial = True

    dependencies = [
        ("accounts", "__first__"),
        ("resources", "0001_initial"),
        ("resources", "0003_network"),
        ("resources", "0004_idle_policy"),
        ("resources", "0005_lending"),
        ("resources", "0006_retention"),
    ]

    operations = [
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("output_bytes", models.BigIntegerField(blank=True, null=True, verbose_name="bytes on the disk")),
                ("output_measured", models.DateTimeField(blank=True, null=True, verbose_name="measured")),
                ("log_removed", models.DateTimeField(blank=True, null=True, verbose_name="log removed")),
                ("metrics_removed", models.DateTimeField(blank=True, null=True, verbose_name="metrics removed")),
                ("output_removed", models.DateTimeField(blank=True, null=True, verbose_name="output removed")),
                ("requirements", models.TextField(blank=True, db_default="", default="", verbose_name="packages")),
                ("packages", models.CharField(blank=True, db_default="", default="", max_length=64)),
                ("preemptible", models.BooleanField(db_default=False, default=False, verbose_name="preemptible")),
                ("preemptions", models.PositiveSmallIntegerField(db_default=0, default=0, verbose_name="preemptions")),
                ("stepping_back", models.DateTimeField(blank=True, null=True, verbose_name="asked to stop")),
                ("requeued", models.DateTimeField(blank=True, null=True)),
                ("queued_s", models.FloatField(db_default=0, default=0)),
                ("name", models.CharField(max_length=50, verbose_name="name")),
                (
                    "runtime",
                    models.CharField(
                        choices=[("python", "Python"), ("torch", "PyTorch"), ("tf", "TensorFlow")],
                        default="python",
                        max_length=10,
                        verbose_name="runtime",
                    ),
                ),
                ("entry", models.CharField(max_length=200, verbose_name="script")),
                ("gpu", models.PositiveSmallIntegerField(default=0, verbose_name="GPU")),
                ("cpu", models.FloatField(default=1, verbose_name="CPU")),
                ("ram", models.PositiveIntegerField(default=512, verbose_name="Memory (MiB)")),
                ("workers", models.PositiveSmallIntegerField(default=1, verbose_name="workers")),
                ("datasets", models.JSONField(blank=True, default=list, verbose_name="datasets")),
                ("job_inputs", models.JSONField(blank=True, db_default={}, default=dict, verbose_name="inputs")),
                ("args", models.JSONField(blank=True, default=list, verbose_name="arguments")),
                ("env", models.JSONField(blank=True, default=dict, verbose_name="environment")),
                ("retries", models.PositiveSmallIntegerField(default=0, verbose_name="retries")),
                ("timeout", models.PositiveIntegerField(blank=True, null=True, verbose_name="time limit (s)")),
                ("priority", models.SmallIntegerField(db_default=0, default=0, verbose_name="priority")),
                (
                    "network",
                    models.CharField(
                        blank=True,
                        choices=[("open", "Platform and internet"), ("platform", "Platform only"), ("none", "None")],
                        db_default="",
                        default="",
                        max_length=10,
                        verbose_name="network",
                    ),
                ),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[
                            ("creating", "queued"),
                            ("running", "running"),
                            ("finished", "finished"),
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
                (
                    "progress_source",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "nobody"),
                            ("script", "the script"),
                            ("trainer", "the training framework"),
                            ("log", "the progress bar in the log"),
                        ],
                        db_default="",
                        default="",
                        max_length=10,
                    ),
                ),
                ("expected_end", models.DateTimeField(blank=True, null=True)),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("reserved", models.BooleanField(default=False, verbose_name="resources reserved")),
                ("attempt", models.PositiveSmallIntegerField(default=0, verbose_name="attempt")),
                ("run_name", models.CharField(blank=True, max_length=64, verbose_name="run")),
                ("run_started", models.BooleanField(default=False)),
                ("not_before", models.DateTimeField(blank=True, null=True, verbose_name="not before")),
                ("metrics_from", models.DateTimeField(blank=True, null=True)),
                ("metrics_until", models.DateTimeField(blank=True, null=True)),
                ("values_kept", models.PositiveBigIntegerField(default=0)),
                ("metrics_notice", models.TextField(blank=True, default="")),
                ("idle_warned", models.DateTimeField(blank=True, null=True, verbose_name="warned of idling")),
                ("idle_kind", models.CharField(blank=True, db_default="", default="", max_length=3)),
                (
                    "idle_exempt",
                    models.BooleanField(db_default=False, default=False, verbose_name="exempt from the idle policy"),
                ),
                ("diagnosed", models.BooleanField(db_default=False, default=False)),
                ("nonce", models.CharField(default=jobs.models.job.new_nonce, max_length=32)),
                ("traceparent", models.CharField(blank=True, db_default="", default="", editable=False, max_length=55)),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("started", models.DateTimeField(blank=True, null=True, verbose_name="started")),
                ("ended", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                ("tags", models.JSONField(blank=True, db_default={}, default=dict, verbose_name="tags")),
                ("notes", models.TextField(blank=True, db_default="", default="", verbose_name="notes")),
                ("favourite", models.BooleanField(db_default=False, default=False, verbose_name="favourite")),
                (
                    "group",
                    models.CharField(blank=True, db_default="", default="", max_length=100, verbose_name="group"),
                ),
                ("colour", models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="colour")),
                ("hidden", models.BooleanField(db_default=False, default=False, verbose_name="hidden in charts")),
                ("trashed", models.DateTimeField(blank=True, null=True, verbose_name="in the trash since")),
                (
                    "run_id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(),
                        default=uuid.uuid4,
                        editable=False,
                        unique=True,
                        verbose_name="run",
                    ),
                ),
                (
                    "origin",
                    models.CharField(
                        choices=[("job", "job"), ("client", "MLflow client")],
                        db_default="job",
                        default="job",
                        max_length=10,
                        verbose_name="origin",
                    ),
                ),
                (
                    "title",
                    models.CharField(blank=True, db_default="", default="", max_length=500, verbose_name="title"),
                ),
                ("system_tags", models.JSONField(blank=True, db_default={}, default=dict)),
                ("heard", models.DateTimeField(blank=True, null=True, verbose_name="last report")),
                (
                    "display_state",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.Case(
                            models.When(reserved=True, state="creating", then=models.Value("starting")),
                            models.When(state="creating", then=models.Value("queued")),
                            models.When(
                                models.Q(
                                    django.db.models.lookups.Exact(
                                        django.db.models.functions.text.Left("reason", 9), "cancelled"
                                    ),
                                    ("state", "error"),
                                ),
                                then=models.Value("cancelled"),
                            ),
                            models.When(state="error", then=models.Value("failed")),
                            default=models.F("state"),
                            output_field=models.CharField(),
                        ),
                        output_field=models.CharField(max_length=10),
                        verbose_name="state on pages",
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="children",
                        to="jobs.job",
                        verbose_name="parent run",
                    ),
                ),
                (
                    "preempted_for",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="jobs.job",
                        verbose_name="preempted for",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="jobs",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="jobs",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "db_table": "job",
                "indexes": [
                    models.Index(fields=["state", "id"], name="job_unsteady"),
                    models.Index(fields=["user", "-id"], name="job_newest"),
                    models.Index(
                        condition=models.Q(("run_name", ""), _negated=True), fields=["id"], name="job_run_left"
                    ),
                    models.Index(condition=models.Q(("reserved", True)), fields=["user"], name="job_reserved"),
                    models.Index(
                        condition=models.Q(("started__isnull", False)),
                        fields=["user", "-started"],
                        name="job_last_start",
                    ),
                    models.Index(
                        condition=models.Q(("preempted_for__isnull", False)),
                        fields=["preempted_for"],
                        name="job_preempted_for",
                    ),
                    models.Index(
                        condition=models.Q(("diagnosed", False), ("state", "error")),
                        fields=["id"],
                        name="job_undiagnosed",
                    ),
                    models.Index(
                        condition=models.Q(("group", ""), _negated=True),
                        fields=["user", "group", "-id"],
                        name="job_group",
                    ),
                    models.Index(
                        condition=models.Q(("trashed", None)),
                        fields=["user", "display_state", "-id"],
                        name="job_by_state",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("log_removed", None), ("metrics_removed", None), ("output_removed", None), _connector="OR"
                        ),
                        fields=["tenant", "ended"],
                        name="job_retained",
                    ),
                    models.Index(condition=models.Q(("output_measured", None)), fields=["id"], name="job_unmeasured"),
                    models.Index(condition=models.Q(("trashed__isnull", False)), fields=["trashed"], name="job_trash"),
                    models.Index(condition=models.Q(("parent__isnull", False)), fields=["parent"], name="job_parent"),
                    django.contrib.postgres.indexes.GinIndex(fields=["tags"], name="job_tags"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="job_name_once_per_user"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["creating", "running", "finished", "error", "deleting"])),
                        name="job_state",
                    ),
                    models.CheckConstraint(condition=models.Q(("progress__lte", 100)), name="job_progress"),
                    models.CheckConstraint(condition=models.Q(("origin__in", ["job", "client"])), name="job_origin"),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="Capture",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("git", models.JSONField(null=True)),
                ("datasets", models.JSONField(null=True)),
                ("environment", models.JSONField(null=True)),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="capture", to="jobs.job"
                    ),
                ),
            ],
            options={
                "db_table": "job_capture",
            },
        ),
        migrations.CreateModel(
            name="Comparison",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, verbose_name="name")),
                ("query", models.TextField(blank=True, default="", verbose_name="query")),
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
                        related_name="comparisons",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "comparison",
                "verbose_name_plural": "comparisons",
                "db_table": "comparison",
                "constraints": [models.UniqueConstraint(fields=("user", "name"), name="comparison_name_once_per_user")],
            },
        ),
        migrations.CreateModel(
            name="ComparedRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.PositiveSmallIntegerField(verbose_name="place")),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="compared", to="jobs.job"
                    ),
                ),
                (
                    "comparison",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rows", to="jobs.comparison"
                    ),
                ),
            ],
            options={
                "verbose_name": "compared run",
                "verbose_name_plural": "compared runs",
                "db_table": "compared_run",
                "constraints": [models.UniqueConstraint(fields=("comparison", "job"), name="compared_run_once")],
            },
        ),
        migrations.CreateModel(
            name="Diagnosis",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(auto_now_add=True, verbose_name="at")),
                ("attempt", models.PositiveSmallIntegerField(default=0, verbose_name="attempt")),
                ("rule", models.CharField(blank=True, max_length=64, verbose_name="rule")),
                ("title", models.TextField(blank=True, verbose_name="title")),
                ("explanation", models.TextField(blank=True, verbose_name="explanation")),
                ("local", models.JSONField(blank=True, default=dict)),
                ("error", models.CharField(blank=True, max_length=200, verbose_name="exception")),
                ("exception", models.TextField(blank=True, verbose_name="last exception")),
                ("file", models.CharField(blank=True, max_length=300, verbose_name="file")),
                ("line", models.PositiveIntegerField(blank=True, null=True, verbose_name="line")),
                ("code", models.CharField(blank=True, max_length=500, verbose_name="code")),
                (
                    "action",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "nothing"),
                            ("more_memory", "Run again with twice the memory"),
                            ("again", "Run again"),
                            ("edit", "Edit the script"),
                            ("upload_script", "Upload the file"),
                            ("dataset", "Choose or upload a dataset"),
                            ("network", "Run again with another network"),
                            ("form", "Change the job's form"),
                            ("usage", "Show the usage"),
                            ("chart", "Show the metrics"),
                        ],
                        default="",
                        max_length=20,
                        verbose_name="button",
                    ),
                ),
                ("facts", models.JSONField(blank=True, default=dict)),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="diagnosis",
                        to="jobs.job",
                        verbose_name="job",
                    ),
                ),
            ],
            options={
                "verbose_name": "diagnosis",
                "verbose_name_plural": "diagnoses",
                "db_table": "diagnosis",
                "indexes": [models.Index(fields=["rule", "-id"], name="diagnosis_rule")],
            },
        ),
        migrations.CreateModel(
            name="FailureRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "shipped",
                    models.CharField(
                        blank=True, default="", editable=False, max_length=60, verbose_name="comes with the platform"
                    ),
                ),
                ("title", models.CharField(max_length=120, verbose_name="title")),
                ("title_zh", models.CharField(blank=True, max_length=120, verbose_name="title in Chinese")),
                (
                    "pattern",
                    models.CharField(
                        help_text="A regular expression (RE2 syntax, no look-around or back-references), searched in each line.",
                        max_length=1000,
                        verbose_name="pattern",
                    ),
                ),
                (
                    "where",
                    models.CharField(
                        choices=[
                            ("exception", "the last exception"),
                            ("log", "the end of the log"),
                            ("reason", "the reason of the end"),
                        ],
                        default="exception",
                        max_length=10,
                        verbose_name="searched in",
                    ),
                ),
                (
                    "explanation",
                    models.TextField(
                        help_text="What the failure means and what to do. %(name)s is replaced by the text that the group (?P&lt;name&gt;…) has matched.",
                        max_length=2000,
                        verbose_name="explanation",
                    ),
                ),
                (
                    "explanation_zh",
                    models.TextField(blank=True, max_length=2000, verbose_name="explanation in Chinese"),
                ),
                (
                    "action",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "nothing"),
                            ("more_memory", "Run again with twice the memory"),
                            ("again", "Run again"),
                            ("edit", "Edit the script"),
                            ("upload_script", "Upload the file"),
                            ("dataset", "Choose or upload a dataset"),
                            ("network", "Run again with another network"),
                            ("form", "Change the job's form"),
                            ("usage", "Show the usage"),
                            ("chart", "Show the metrics"),
                        ],
                        default="",
                        max_length=20,
                        verbose_name="button",
                    ),
                ),
                (
                    "example",
                    models.TextField(
                        help_text="Text that the pattern must match; checked when the rule is saved.",
                        max_length=4000,
                        verbose_name="example",
                    ),
                ),
                (
                    "order",
                    models.PositiveSmallIntegerField(
                        default=50,
                        help_text="The first rule that matches counts. Shipped rules begin at 100.",
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(1000),
                        ],
                        verbose_name="order",
                    ),
                ),
                ("active", models.BooleanField(default=True, verbose_name="active")),
            ],
            options={
                "verbose_name": "failure rule",
                "verbose_name_plural": "failure rules",
                "db_table": "failure_rule",
                "ordering": ["order", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("shipped", ""), _negated=True),
                        fields=("shipped",),
                        name="failure_rule_shipped_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("where__in", ["exception", "log", "reason"])), name="failure_rule_where"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LoggedModel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "key",
                    models.CharField(
                        default=jobs.models.artifacts.new_key, max_length=34, unique=True, verbose_name="id"
                    ),
                ),
                ("has_source", models.BooleanField(db_default=True, default=True)),
                ("name", models.CharField(max_length=500, verbose_name="name")),
                (
                    "model_type",
                    models.CharField(blank=True, db_default="", default="", max_length=500, verbose_name="type"),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("LOGGED_MODEL_PENDING", "uploading"),
                            ("LOGGED_MODEL_READY", "ready"),
                            ("LOGGED_MODEL_UPLOAD_FAILED", "upload failed"),
                        ],
                        db_default="LOGGED_MODEL_PENDING",
                        default="LOGGED_MODEL_PENDING",
                        max_length=30,
                        verbose_name="status",
                    ),
                ),
                ("tags", models.JSONField(blank=True, db_default={}, default=dict, verbose_name="tags")),
                ("params", models.JSONField(blank=True, db_default={}, default=dict, verbose_name="parameters")),
                ("metrics", models.JSONField(blank=True, db_default={}, default=dict, verbose_name="metrics")),
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
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="logged_models",
                        to="jobs.job",
                        verbose_name="run",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="logged_models",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "logged model",
                "verbose_name_plural": "logged models",
                "db_table": "logged_model",
                "indexes": [models.Index(fields=["user", "-created"], name="logged_model_newest")],
            },
        ),
        migrations.CreateModel(
            name="Metrics",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.PositiveIntegerField(verbose_name="number")),
                ("epoch", models.BigIntegerField(verbose_name="epoch")),
                ("accuracy", models.FloatField(verbose_name="accuracy")),
                ("loss", models.FloatField(verbose_name="loss")),
                ("progress", models.SmallIntegerField(verbose_name="progress")),
                ("attempt", models.PositiveSmallIntegerField(default=1, verbose_name="attempt")),
                ("msg_id", models.CharField(max_length=200, verbose_name="message")),
                ("at", models.DateTimeField(auto_now_add=True, verbose_name="at")),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="metrics",
                        to="jobs.job",
                        verbose_name="job",
                    ),
                ),
            ],
            options={
                "verbose_name": "metrics",
                "verbose_name_plural": "metrics",
                "db_table": "metrics",
                "ordering": ["seq"],
                "constraints": [
                    models.UniqueConstraint(fields=("job", "seq"), name="metrics_seq_once"),
                    models.UniqueConstraint(fields=("job", "msg_id"), name="metrics_message_once"),
                    models.CheckConstraint(condition=models.Q(("epoch__gte", 0)), name="metrics_epoch"),
                    models.CheckConstraint(
                        condition=models.Q(("progress__gte", -1), ("progress__lte", 100)), name="metrics_progress"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ModelUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("input", "input"), ("output", "output")], max_length=10)),
                ("step", models.BigIntegerField(db_default=0, default=0, verbose_name="step")),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="model_uses",
                        to="jobs.job",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="uses",
                        to="jobs.loggedmodel",
                        verbose_name="model",
                    ),
                ),
            ],
            options={
                "verbose_name": "model of a run",
                "verbose_name_plural": "models of runs",
                "db_table": "model_use",
                "ordering": ["pk"],
                "constraints": [models.UniqueConstraint(fields=("job", "model", "kind"), name="model_use_once")],
            },
        ),
        migrations.CreateModel(
            name="Project",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=500, verbose_name="name")),
                ("default", models.BooleanField(default=False, verbose_name="default project")),
                ("readme", models.TextField(blank=True, default="", verbose_name="readme")),
                ("board", models.JSONField(blank=True, default=list, verbose_name="board")),
                ("goals", models.JSONField(blank=True, default=dict, verbose_name="directions")),
                ("tags", models.JSONField(blank=True, default=dict, verbose_name="tags")),
                ("system_tags", models.JSONField(blank=True, db_default={}, default=dict)),
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
                ("trashed", models.DateTimeField(blank=True, null=True, verbose_name="in the trash since")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="projects",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "project",
                "verbose_name_plural": "projects",
                "db_table": "project",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("trashed", None)),
                        fields=("user", "name"),
                        name="project_name_once_per_user",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("default", True)), fields=("user",), name="project_one_default_per_user"
                    ),
                ],
            },
        ),
        migrations.AddField(
            model_name="job",
            name="project",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="jobs",
                to="jobs.project",
                verbose_name="project",
            ),
        ),
        migrations.CreateModel(
            name="RunInput",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=500, verbose_name="name")),
                ("digest", models.CharField(max_length=36, verbose_name="digest")),
                ("source_type", models.CharField(blank=True, max_length=500, verbose_name="kind of source")),
                ("source", models.TextField(blank=True, verbose_name="source")),
                ("schema", models.TextField(blank=True, verbose_name="schema")),
                ("profile", models.TextField(blank=True, verbose_name="profile")),
                ("tags", models.JSONField(blank=True, default=dict, verbose_name="tags")),
                ("context", models.CharField(blank=True, max_length=500, verbose_name="context")),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="inputs",
                        to="jobs.job",
                    ),
                ),
            ],
            options={
                "verbose_name": "input",
                "verbose_name_plural": "inputs",
                "db_table": "run_input",
                "ordering": ["pk"],
                "indexes": [models.Index(fields=["name", "digest"], name="run_input_name")],
                "constraints": [models.UniqueConstraint(fields=("job", "name", "digest"), name="run_input_once")],
            },
        ),
        migrations.CreateModel(
            name="RunMetric",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=250, verbose_name="name")),
                ("last", models.FloatField(verbose_name="last")),
                ("min", models.FloatField(verbose_name="minimum")),
                ("max", models.FloatField(verbose_name="maximum")),
                ("count", models.BigIntegerField(verbose_name="values")),
                ("step", models.BigIntegerField(verbose_name="last step")),
                ("at", models.DateTimeField(null=True, verbose_name="at")),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="summaries",
                        to="jobs.job",
                    ),
                ),
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
                "verbose_name": "metric",
                "verbose_name_plural": "metrics",
                "db_table": "run_metric",
                "indexes": [
                    models.Index(fields=["user", "name", "last", "job"], name="summary_by_last"),
                    models.Index(fields=["user", "name", "min", "job"], name="summary_by_min"),
                    models.Index(fields=["user", "name", "max", "job"], name="summary_by_max"),
                ],
                "constraints": [models.UniqueConstraint(fields=("job", "name"), name="summary_once")],
            },
        ),
        migrations.CreateModel(
            name="RunParam",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=250, verbose_name="name")),
                ("text", models.TextField(verbose_name="value")),
                ("number", models.FloatField(blank=True, null=True)),
                (
                    "place",
                    models.GeneratedField(
                        db_persist=True,
                        expression=django.db.models.functions.comparison.Coalesce("number", models.Value(float("inf"))),
                        output_field=models.FloatField(),
                    ),
                ),
                (
                    "source",
                    models.CharField(
                        choices=[("argument", "argument"), ("parameter", "parameter")],
                        default="argument",
                        max_length=10,
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="params",
                        to="jobs.job",
                    ),
                ),
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
                "verbose_name": "parameter",
                "verbose_name_plural": "parameters",
                "db_table": "run_param",
                "indexes": [
                    models.Index(
                        models.F("user"),
                        models.F("name"),
                        models.F("place"),
                        django.db.models.functions.text.Left("text", 64),
                        models.F("job"),
                        name="param_by_value",
                    )
                ],
                "constraints": [models.UniqueConstraint(fields=("job", "name"), name="param_once")],
            },
        ),
        migrations.CreateModel(
            name="Snapshot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, verbose_name="checksum")),
                ("manifest", models.JSONField()),
                ("made", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="snapshots",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "snapshot",
                "verbose_name_plural": "snapshots",
                "db_table": "code_snapshot",
                "constraints": [models.UniqueConstraint(fields=("user", "digest"), name="code_snapshot_once")],
            },
        ),
        migrations.AddField(
            model_name="job",
            name="snapshot",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="jobs",
                to="jobs.snapshot",
                verbose_name="code",
            ),
        ),
        migrations.CreateModel(
            name="Value",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=250, verbose_name="name")),
                ("step", models.BigIntegerField(verbose_name="step")),
                ("value", models.FloatField(verbose_name="value")),
                ("at", models.DateTimeField(verbose_name="at")),
                ("attempt", models.PositiveSmallIntegerField(default=1, verbose_name="attempt")),
                ("msg_id", models.CharField(max_length=200, verbose_name="message")),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="values",
                        to="jobs.job",
                        verbose_name="job",
                    ),
                ),
            ],
            options={
                "verbose_name": "value",
                "verbose_name_plural": "values",
                "db_table": "metric_value",
                "ordering": ["pk"],
                "indexes": [models.Index(fields=["job", "name", "id"], name="value_series")],
                "constraints": [models.UniqueConstraint(fields=("job", "msg_id", "name"), name="value_message_once")],
            },
        ),
        migrations.CreateModel(
            name="View",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, verbose_name="name")),
                ("query", models.TextField(blank=True, default="", verbose_name="query")),
                (
                    "created",
                    models.DateTimeField(
                        auto_now_add=True, db_default=django.db.models.functions.datetime.Now(), verbose_name="created"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="views",
                        to="jobs.project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "verbose_name": "saved view",
                "verbose_name_plural": "saved views",
                "db_table": "run_view",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "project", "name"), name="view_name_once_per_project", nulls_distinct=False
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ArtifactSpace",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="artifact_space",
                        serialize=False,
                        to="jobs.job",
                    ),
                ),
                ("stored", models.BigIntegerField(db_default=0, default=0, verbose_name="bytes")),
                ("reserved", models.BigIntegerField(db_default=0, default=0, verbose_name="reserved bytes")),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "space of artifacts",
                "verbose_name_plural": "space of artifacts",
                "db_table": "artifact_space",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("stored__gte", 0), ("reserved__gte", 0)), name="artifact_space_not_negative"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Blob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=65)),
                ("size", models.BigIntegerField()),
                ("refs", models.PositiveIntegerField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "db_table": "code_blob",
                "indexes": [models.Index(condition=models.Q(("refs", 0)), fields=["user"], name="code_blob_unused")],
                "constraints": [models.UniqueConstraint(fields=("user", "name"), name="code_blob_once")],
            },
        ),
        migrations.CreateModel(
            name="Block",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.PositiveSmallIntegerField(choices=[(0, "Values"), (1, "Metrics")])),
                ("name", models.CharField(max_length=250, verbose_name="name")),
                ("attempt", models.PositiveSmallIntegerField(verbose_name="attempt")),
                ("first", models.BigIntegerField()),
                ("last", models.BigIntegerField()),
                ("count", models.IntegerField()),
                ("low_step", models.BigIntegerField()),
                ("high_step", models.BigIntegerField()),
                ("low_at", models.DateTimeField()),
                ("high_at", models.DateTimeField()),
                ("low", models.FloatField(null=True)),
                ("high", models.FloatField(null=True)),
                ("bad", models.IntegerField(default=0)),
                ("bad_row", models.BigIntegerField(null=True)),
                ("coarse", models.BinaryField()),
                ("fine", models.BinaryField()),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.job", verbose_name="job"
                    ),
                ),
            ],
            options={
                "verbose_name": "block of values",
                "verbose_name_plural": "blocks of values",
                "db_table": "metric_block",
                "constraints": [models.UniqueConstraint(fields=("job", "source", "name", "first"), name="block_once")],
            },
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(fields=["project", "-id"], name="job_of_project"),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(condition=models.Q(("hidden", True)), fields=["project"], name="job_hidden"),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("trashed", None)),
                fields=["user", "project", "display_state", "-id"],
                name="job_project_state",
            ),
        ),
        migrations.RunSQL(
            sql="ALTER TABLE metric_block ALTER coarse SET STORAGE EXTERNAL, ALTER fine SET STORAGE EXTERNAL",
            reverse_sql="",
        ),
    ]
