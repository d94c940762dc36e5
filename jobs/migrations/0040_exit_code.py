from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0039_state_by_outcome")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="exit_code",
            field=models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="exit code"),
        ),
    ]
