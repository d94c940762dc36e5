"""Jobs that may be interrupted for others."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0024_idle"),
        ("resources", "0004_idle_policy"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="preempted_for",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="jobs.job",
                verbose_name="preempted for",
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="preemptible",
            field=models.BooleanField(db_default=False, default=False, verbose_name="preemptible"),
        ),
        migrations.AddField(
            model_name="job",
            name="preemptions",
            field=models.PositiveSmallIntegerField(db_default=0, default=0, verbose_name="preemptions"),
        ),
        migrations.AddField(
            model_name="job",
            name="queued_s",
            field=models.FloatField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="job",
            name="requeued",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="stepping_back",
            field=models.DateTimeField(blank=True, null=True, verbose_name="asked to stop"),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("preempted_for__isnull", False)), fields=["preempted_for"], name="job_preempted_for"
            ),
        ),
    ]
