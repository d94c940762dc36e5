"""The warning of an idle job, and the exemption from its tenant's policy."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0023_value_index"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="idle_exempt",
            field=models.BooleanField(db_default=False, default=False, verbose_name="exempt from the idle policy"),
        ),
        migrations.AddField(
            model_name="job",
            name="idle_kind",
            field=models.CharField(blank=True, db_default="", default="", max_length=3),
        ),
        migrations.AddField(
            model_name="job",
            name="idle_warned",
            field=models.DateTimeField(blank=True, null=True, verbose_name="warned of idling"),
        ),
    ]
