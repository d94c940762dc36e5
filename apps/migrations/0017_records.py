import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("apps", "0016_canary_steps"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Feedback",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("request_id", models.CharField(max_length=64, verbose_name="request id")),
                ("at", models.DateTimeField(auto_now_add=True, verbose_name="time")),
                ("caller", models.CharField(blank=True, default="", max_length=50, verbose_name="key")),
                ("value", models.JSONField(verbose_name="value")),
                ("comment", models.TextField(blank=True, default="", verbose_name="comment")),
            ],
            options={
                "verbose_name": "feedback",
                "verbose_name_plural": "feedback",
                "db_table": "app_feedback",
            },
        ),
        migrations.CreateModel(
            name="Record",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("request_id", models.CharField(max_length=64, verbose_name="request id")),
                ("at", models.DateTimeField(verbose_name="time")),
                ("run_name", models.CharField(max_length=64, verbose_name="run")),
                ("model_name", models.CharField(max_length=50, verbose_name="model")),
                ("arm", models.CharField(blank=True, default="", max_length=10, verbose_name="canary")),
                ("caller", models.CharField(blank=True, default="", max_length=50, verbose_name="key")),
                ("path", models.CharField(max_length=200, verbose_name="path")),
                ("status", models.PositiveSmallIntegerField(verbose_name="status")),
                ("whole", models.BooleanField(default=True, verbose_name="answered to the end")),
                ("ms", models.FloatField(verbose_name="duration (ms)")),
                ("input", models.TextField(blank=True, verbose_name="input")),
                (
                    "input_kept",
                    models.CharField(
                        choices=[
                            ("all", "whole"),
                            ("cut", "cut off"),
                            ("withheld", "withheld"),
                            ("binary", "binary"),
                            ("none", "empty"),
                        ],
                        max_length=10,
                    ),
                ),
                ("input_type", models.CharField(blank=True, max_length=100)),
                ("input_size", models.BigIntegerField(verbose_name="bytes")),
                ("output", models.TextField(blank=True, verbose_name="output")),
                (
                    "output_kept",
                    models.CharField(
                        choices=[
                            ("all", "whole"),
                            ("cut", "cut off"),
                            ("withheld", "withheld"),
                            ("binary", "binary"),
                            ("none", "empty"),
                        ],
                        max_length=10,
                    ),
                ),
                ("output_type", models.CharField(blank=True, max_length=100)),
                ("output_size", models.BigIntegerField(verbose_name="bytes")),
                ("size", models.PositiveIntegerField()),
            ],
            options={
                "verbose_name": "record",
                "verbose_name_plural": "records",
                "db_table": "app_record",
            },
        ),
        migrations.CreateModel(
            name="Recording",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("on", models.BooleanField(default=False, verbose_name="recording")),
                ("share", models.FloatField(default=1.0, verbose_name="share of the requests")),
                ("days", models.PositiveSmallIntegerField(default=30, verbose_name="days")),
                (
                    "mask",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], models.JSONField()),
                        default=list,
                        verbose_name="masked fields",
                    ),
                ),
                ("record_kib", models.PositiveSmallIntegerField(default=16, verbose_name="KiB per body")),
                ("most_mib", models.PositiveIntegerField(default=256, verbose_name="MiB of all records")),
                ("stored", models.BigIntegerField(default=0, verbose_name="bytes")),
                ("dropped", models.BigIntegerField(default=0, verbose_name="dropped")),
                ("problem", models.TextField(blank=True, verbose_name="reason")),
            ],
            options={
                "verbose_name": "recording of an application",
                "verbose_name_plural": "recordings of applications",
                "db_table": "app_recording",
            },
        ),
        migrations.AddField(
            model_name="apprun",
            name="records",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name="apprun",
            index=models.Index(condition=models.Q(("records__isnull", False)), fields=["id"], name="app_run_recording"),
        ),
        migrations.AddField(
            model_name="feedback",
            name="app",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="feedback", to="apps.application"
            ),
        ),
        migrations.AddField(
            model_name="feedback",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="record",
            name="app",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="records",
                to="apps.application",
                verbose_name="application",
            ),
        ),
        migrations.AddField(
            model_name="record",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="recording",
            name="app",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.CASCADE, related_name="recording", to="apps.application"
            ),
        ),
        migrations.AddIndex(
            model_name="feedback",
            index=models.Index(fields=["app", "request_id"], name="app_feedback_by_id"),
        ),
        migrations.AddIndex(
            model_name="feedback",
            index=models.Index(fields=["app", "at"], name="app_feedback_by_age"),
        ),
        migrations.AddIndex(
            model_name="record",
            index=models.Index(fields=["app", "-at", "-id"], name="app_record_newest"),
        ),
        migrations.AddIndex(
            model_name="record",
            index=models.Index(fields=["app", "request_id"], name="app_record_by_id"),
        ),
    ]
