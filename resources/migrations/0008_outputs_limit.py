"""How much the folders of a user's jobs may take on the disk, as the user's tenant limits it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0007_database_limit")]

    operations = [
        migrations.AddField(
            model_name="userlimit",
            name="outputs",
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name="Job files (MiB)"),
        ),
    ]
