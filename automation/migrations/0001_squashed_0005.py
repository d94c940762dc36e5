"""The tables of a new database, at once: what 0001 to 0005 make one after the other in an older one."""

import django.db.models.deletion
import django.utils.timezone
import django_fsm
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("automation", "0001_sweeps"),
        ("automation", "0002_schedules"),
        ("automation", "0003_pipelines"),
        ("automation", "0004_scheduled_pipelines"),
        ("automation", "0005_deleted_pipelines"),
    ]

    initial = True

    dependencies = [
        ("accounts", "__first__"),
        ("jobs", "0023_value_index"),
        ("jobs", "0026_inputs"),
    ]

    operations = [
        migrations.CreateModel(
            name="Pipeline",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=40, verbose_name="name")),
                ("notes", models.TextField(blank=True, default="", verbose_name="notes")),
                ("params", models.JSONField(default=dict, verbose_name="parameters")),
                ("steps", models.JSONField(verbose_name="steps")),
                ("last", models.PositiveIntegerField(default=0, verbose_name="runs so far")),
                ("deleted", models.BooleanField(db_default=False, default=False)),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("updated", models.DateTimeField(default=django.utils.timezone.now, verbose_name="changed")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="pipelines",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "pipeline",
                "verbose_name_plural": "pipelines",
                "db_table": "pipeline",
                "constraints": [models.UniqueConstraint(fields=("user", "name"), name="pipeline_name_once_per_user")],
            },
        ),
        migrations.CreateModel(
            name="PipelineRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(verbose_name="number")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[
                            ("running", "running"),
                            ("finished", "finished"),
                            ("error", "failed"),
                            ("deleting", "deleting"),
                        ],
                        default="running",
                        max_length=50,
                        protected=True,
                        verbose_name="state",
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("params", models.JSONField(default=dict, verbose_name="parameters")),
                ("wanted", models.PositiveBigIntegerField(default=0)),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("ended", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                (
                    "pipeline",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="runs",
                        to="automation.pipeline",
                        verbose_name="pipeline",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="pipeline_runs",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "pipeline run",
                "verbose_name_plural": "pipeline runs",
                "db_table": "pipeline_run",
                "indexes": [
                    models.Index(
                        condition=models.Q(("state__in", ["running", "deleting"])),
                        fields=["state"],
                        name="pipeline_run_open",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("pipeline", "number"), name="pipeline_run_number_once"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["running", "finished", "error", "deleting"])),
                        name="pipeline_run_state",
                    ),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=50, verbose_name="name")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[("active", "active"), ("paused", "paused"), ("deleting", "deleting")],
                        default="active",
                        max_length=50,
                        protected=True,
                        verbose_name="state",
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("notes", models.TextField(blank=True, default="", verbose_name="notes")),
                ("kind", models.CharField(max_length=10, verbose_name="submits")),
                ("spec", models.JSONField(verbose_name="what is submitted")),
                ("cron", models.CharField(blank=True, default="", max_length=100, verbose_name="cron expression")),
                ("time_zone", models.CharField(default="UTC", max_length=64, verbose_name="time zone")),
                ("event", models.JSONField(default=dict, verbose_name="event")),
                ("overlap", models.CharField(default="skip", max_length=10, verbose_name="while the last one runs")),
                ("catch_up", models.CharField(default="latest", max_length=10, verbose_name="missed times")),
                ("next_at", models.DateTimeField(blank=True, null=True, verbose_name="next time")),
                ("seen", models.BigIntegerField(default=0)),
                ("submitted", models.PositiveIntegerField(default=0, verbose_name="submitted")),
                ("failures", models.PositiveIntegerField(default=0, verbose_name="failures in a row")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("since", models.DateTimeField(verbose_name="active since")),
                (
                    "snapshot",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="schedules",
                        to="jobs.snapshot",
                        verbose_name="code",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="schedules",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "db_table": "schedule",
                "indexes": [
                    models.Index(condition=models.Q(("state", "active")), fields=["next_at"], name="schedule_due")
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="schedule_name_once_per_user"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["active", "paused", "deleting"])), name="schedule_state"
                    ),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.PositiveSmallIntegerField(verbose_name="place")),
                ("name", models.CharField(max_length=40, verbose_name="name")),
                ("spec", models.JSONField(verbose_name="step")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[
                            ("waiting", "waiting"),
                            ("running", "running"),
                            ("approval", "waits for approval"),
                            ("complete", "complete"),
                            ("cached", "unchanged"),
                            ("skipped", "skipped"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        default="waiting",
                        max_length=50,
                        protected=True,
                        verbose_name="state",
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("key", models.CharField(blank=True, default="", max_length=64)),
                ("by", models.CharField(blank=True, default="", max_length=80, verbose_name="decided by")),
                ("started", models.DateTimeField(blank=True, null=True, verbose_name="started")),
                ("ended", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="steps",
                        to="jobs.job",
                        verbose_name="job",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steps",
                        to="automation.pipelinerun",
                        verbose_name="run",
                    ),
                ),
                (
                    "snapshot",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="steps",
                        to="jobs.snapshot",
                        verbose_name="code",
                    ),
                ),
            ],
            options={
                "verbose_name": "step",
                "verbose_name_plural": "steps",
                "db_table": "pipeline_step",
                "ordering": ["place"],
                "indexes": [
                    models.Index(condition=models.Q(("state", "complete")), fields=["key"], name="step_result")
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("run", "name"), name="step_name_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "waiting",
                                    "running",
                                    "approval",
                                    "complete",
                                    "cached",
                                    "skipped",
                                    "failed",
                                    "cancelled",
                                ],
                            )
                        ),
                        name="step_state",
                    ),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="Sweep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=50, verbose_name="name")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[
                            ("running", "running"),
                            ("paused", "paused"),
                            ("finished", "finished"),
                            ("error", "failed"),
                            ("deleting", "deleting"),
                        ],
                        default="running",
                        max_length=50,
                        protected=True,
                        verbose_name="state",
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("notes", models.TextField(blank=True, default="", verbose_name="notes")),
                ("job", models.JSONField(verbose_name="job")),
                ("parameters", models.JSONField(verbose_name="search space")),
                ("pass_as", models.CharField(max_length=12, verbose_name="values are passed as")),
                ("objectives", models.JSONField(verbose_name="objectives")),
                ("sampler", models.JSONField(verbose_name="sampler")),
                ("pruner", models.JSONField(verbose_name="pruner")),
                ("stop", models.JSONField(verbose_name="stop rules")),
                ("trials_wanted", models.PositiveIntegerField(verbose_name="trials")),
                ("parallel", models.PositiveSmallIntegerField(verbose_name="at the same time")),
                ("asked", models.PositiveIntegerField(default=0)),
                ("every", models.PositiveIntegerField(default=1)),
                ("attrs", models.JSONField(default=dict)),
                ("best", models.JSONField(default=list, verbose_name="best trials")),
                ("importance", models.JSONField(default=dict, verbose_name="importance")),
                ("wanted", models.PositiveBigIntegerField(default=0)),
                ("trash_runs", models.BooleanField(default=False)),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("resumed", models.DateTimeField(default=django.utils.timezone.now, verbose_name="running since")),
                ("used_s", models.FloatField(default=0, verbose_name="time used (s)")),
                ("ended", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                (
                    "snapshot",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sweeps",
                        to="jobs.snapshot",
                        verbose_name="code",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sweeps",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "sweep",
                "verbose_name_plural": "sweeps",
                "db_table": "sweep",
                "indexes": [
                    models.Index(
                        condition=models.Q(("state__in", ("finished", "error")), _negated=True),
                        fields=["state"],
                        name="sweep_open",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="sweep_name_once_per_user"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["running", "paused", "finished", "error", "deleting"])),
                        name="sweep_state",
                    ),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="Firing",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=100, verbose_name="key")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("submitted", "submitted"),
                            ("waiting", "waiting"),
                            ("skipped", "skipped"),
                            ("failed", "failed"),
                            ("missed", "missed"),
                        ],
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("planned", models.DateTimeField(verbose_name="planned")),
                ("at", models.DateTimeField(verbose_name="at")),
                ("made", models.CharField(blank=True, default="", max_length=50, verbose_name="submitted")),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="firings",
                        to="jobs.job",
                        verbose_name="job",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="firings",
                        to="automation.pipelinerun",
                        verbose_name="pipeline run",
                    ),
                ),
                (
                    "schedule",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="firings",
                        to="automation.schedule",
                        verbose_name="schedule",
                    ),
                ),
                (
                    "sweep",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="firings",
                        to="automation.sweep",
                        verbose_name="sweep",
                    ),
                ),
            ],
            options={
                "verbose_name": "firing",
                "verbose_name_plural": "firings",
                "db_table": "schedule_firing",
                "ordering": ["-id"],
                "constraints": [
                    models.UniqueConstraint(fields=("schedule", "key"), name="firing_key_once"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["submitted", "waiting", "skipped", "failed", "missed"])),
                        name="firing_state",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Trial",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(verbose_name="number")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[
                            ("waiting", "waiting"),
                            ("running", "running"),
                            ("complete", "complete"),
                            ("pruned", "pruned"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        default="waiting",
                        max_length=50,
                        protected=True,
                        verbose_name="state",
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                ("params", models.JSONField(verbose_name="values")),
                ("given", models.JSONField(default=list)),
                ("attrs", models.JSONField(default=dict)),
                ("values", models.JSONField(blank=True, null=True, verbose_name="results")),
                ("steps", models.JSONField(default=list)),
                ("seen", models.BigIntegerField(default=0)),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("started", models.DateTimeField(blank=True, null=True, verbose_name="started")),
                ("ended", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                ("gpu_s", models.FloatField(default=0, verbose_name="GPU seconds")),
                (
                    "job",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="trial",
                        to="jobs.job",
                        verbose_name="job",
                    ),
                ),
                (
                    "sweep",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="trials",
                        to="automation.sweep",
                        verbose_name="sweep",
                    ),
                ),
            ],
            options={
                "verbose_name": "trial",
                "verbose_name_plural": "trials",
                "db_table": "sweep_trial",
                "ordering": ["number"],
                "constraints": [
                    models.UniqueConstraint(fields=("sweep", "number"), name="trial_number_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["waiting", "running", "complete", "pruned", "failed", "cancelled"])
                        ),
                        name="trial_state",
                    ),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
    ]
