from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("resources", "0013_workspace_files"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="record_days",
            field=models.PositiveSmallIntegerField(
                blank=True, null=True, verbose_name="days that requests may be recorded"
            ),
        ),
    ]
