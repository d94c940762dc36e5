from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0017_comparisons")]

    operations = [
        migrations.AddField(
            "job", "colour", models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="colour")
        ),
        migrations.AddField(
            "job", "hidden", models.BooleanField(db_default=False, default=False, verbose_name="hidden in charts")
        ),
        migrations.AddIndex(
            "job", models.Index(condition=models.Q(hidden=True), fields=["project"], name="job_hidden")
        ),
    ]
