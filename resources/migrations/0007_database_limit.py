"""How much the entries of a user may take in the database, as the user's tenant limits it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0006_retention")]

    operations = [
        migrations.AddField(
            model_name="userlimit",
            name="database",
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name="Database (MiB)"),
        ),
    ]
