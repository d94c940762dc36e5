"""A time limit, and a priority among the user's own queued jobs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0020_logged_models")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="timeout",
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name="time limit (s)"),
        ),
        migrations.AddField(
            model_name="job",
            name="priority",
            field=models.SmallIntegerField(db_default=0, default=0, verbose_name="priority"),
        ),
    ]
