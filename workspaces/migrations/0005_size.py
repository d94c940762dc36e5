"""What the files of a workspace take on the disk."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workspaces", "0004_guests")]

    operations = [
        migrations.AddField(
            model_name="workspace",
            name="size",
            field=models.BigIntegerField(blank=True, null=True, verbose_name="bytes on the disk"),
        ),
        migrations.AddField(
            model_name="workspace",
            name="measured",
            field=models.DateTimeField(blank=True, null=True, verbose_name="measured"),
        ),
    ]
