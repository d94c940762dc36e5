import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import jobs.models.traces


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0043_gpu_type"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Trace",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=64, verbose_name="id")),
                ("name", models.CharField(blank=True, default="", max_length=500, verbose_name="name")),
                (
                    "status",
                    models.CharField(
                        choices=[("in_progress", "in progress"), ("ok", "OK"), ("error", "error")],
                        default="in_progress",
                        max_length=20,
                        verbose_name="status",
                    ),
                ),
                ("started_ns", models.BigIntegerField(default=0)),
                ("ended_ns", models.BigIntegerField(blank=True, null=True)),
                ("spans_kept", models.PositiveIntegerField(default=0, verbose_name="spans")),
                ("errors", models.PositiveIntegerField(default=0, verbose_name="errors")),
                ("input_tokens", models.BigIntegerField(blank=True, null=True, verbose_name="input tokens")),
                ("output_tokens", models.BigIntegerField(blank=True, null=True, verbose_name="output tokens")),
                ("cost", models.FloatField(blank=True, null=True, verbose_name="cost")),
                ("model", models.CharField(blank=True, default="", max_length=250, verbose_name="model")),
                ("request", models.TextField(blank=True, default="", verbose_name="request")),
                ("response", models.TextField(blank=True, default="", verbose_name="response")),
                ("session", models.CharField(blank=True, default="", max_length=250, verbose_name="session")),
                ("end_user", models.CharField(blank=True, default="", max_length=250, verbose_name="end user")),
                ("reported", models.BooleanField(default=False)),
                ("tags", models.JSONField(blank=True, default=dict, verbose_name="tags")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
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
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="traces",
                        to="jobs.project",
                        verbose_name="project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="traces",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "trace",
                "verbose_name_plural": "traces",
                "db_table": "trace",
            },
        ),
        migrations.CreateModel(
            name="Span",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=16, verbose_name="id")),
                ("parent", models.CharField(blank=True, default="", max_length=16, verbose_name="parent")),
                ("from_afar", models.BooleanField(default=False)),
                ("name", models.CharField(blank=True, default="", max_length=500, verbose_name="name")),
                ("kind", models.CharField(blank=True, default="", max_length=20, verbose_name="kind")),
                ("type", models.CharField(blank=True, default="", max_length=50, verbose_name="type")),
                (
                    "status",
                    models.CharField(
                        choices=[("unset", "unset"), ("ok", "OK"), ("error", "error")],
                        default="unset",
                        max_length=10,
                        verbose_name="status",
                    ),
                ),
                ("message", models.TextField(blank=True, default="", verbose_name="message")),
                ("started_ns", models.BigIntegerField()),
                ("ended_ns", models.BigIntegerField(blank=True, null=True)),
                ("attributes", models.JSONField(blank=True, default=dict, verbose_name="attributes")),
                ("events", models.JSONField(blank=True, default=list, verbose_name="events")),
                ("resource", models.JSONField(blank=True, default=dict, verbose_name="resource")),
                ("scope", models.CharField(blank=True, default="", max_length=250, verbose_name="scope")),
                ("model", models.CharField(blank=True, default="", max_length=250, verbose_name="model")),
                ("input_tokens", models.BigIntegerField(blank=True, null=True, verbose_name="input tokens")),
                ("output_tokens", models.BigIntegerField(blank=True, null=True, verbose_name="output tokens")),
                ("cost", models.FloatField(blank=True, null=True, verbose_name="cost")),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
                (
                    "trace",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="spans",
                        to="jobs.trace",
                        verbose_name="trace",
                    ),
                ),
            ],
            options={
                "verbose_name": "span",
                "verbose_name_plural": "spans",
                "db_table": "trace_span",
            },
        ),
        migrations.CreateModel(
            name="Assessment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "key",
                    models.CharField(default=jobs.models.traces.new_key, max_length=34, unique=True, verbose_name="id"),
                ),
                ("name", models.CharField(max_length=250, verbose_name="name")),
                (
                    "kind",
                    models.CharField(
                        choices=[("feedback", "feedback"), ("expectation", "expectation")],
                        default="feedback",
                        max_length=20,
                        verbose_name="kind",
                    ),
                ),
                ("value", models.JSONField(blank=True, null=True, verbose_name="value")),
                ("error", models.JSONField(blank=True, null=True, verbose_name="error")),
                ("rationale", models.TextField(blank=True, default="", verbose_name="rationale")),
                ("source_type", models.CharField(default="HUMAN", max_length=50, verbose_name="source")),
                ("source", models.CharField(blank=True, default="", max_length=250, verbose_name="source")),
                ("span", models.CharField(blank=True, default="", max_length=16, verbose_name="span")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                ("overrides", models.CharField(blank=True, default="", max_length=34)),
                ("valid", models.BooleanField(default=True)),
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
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
                (
                    "trace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="assessments",
                        to="jobs.trace",
                        verbose_name="trace",
                    ),
                ),
            ],
            options={
                "verbose_name": "assessment",
                "verbose_name_plural": "assessments",
                "db_table": "trace_assessment",
                "ordering": ["pk"],
            },
        ),
        migrations.AddIndex(
            model_name="trace",
            index=models.Index(fields=["project", "-started_ns"], name="trace_of_project"),
        ),
        migrations.AddIndex(
            model_name="trace",
            index=models.Index(fields=["created"], name="trace_by_age"),
        ),
        migrations.AddConstraint(
            model_name="trace",
            constraint=models.UniqueConstraint(fields=("user", "key"), name="trace_once_per_user"),
        ),
        migrations.AddConstraint(
            model_name="trace",
            constraint=models.CheckConstraint(
                condition=models.Q(("status__in", ["in_progress", "ok", "error"])), name="trace_status_is_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="span",
            constraint=models.UniqueConstraint(fields=("trace", "key"), name="span_once_per_trace"),
        ),
    ]
