from django.db import migrations, models
from django.utils import timezone


def close_what_was_closed(apps, schema_editor):
    jobs = apps.get_model("jobs", "Job").objects.filter(state="running", metrics_open=False)
    jobs.update(metrics_until=timezone.now())


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0003_workers"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="metrics_from",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="metrics_until",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.RunPython(close_what_was_closed, migrations.RunPython.noop),
        migrations.RemoveField(
            model_name="job",
            name="metrics_open",
        ),
    ]
