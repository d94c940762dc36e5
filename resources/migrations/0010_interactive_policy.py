from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("resources", "0009_own_log_models"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="allows_attach",
            field=models.BooleanField(db_default=True, default=True, verbose_name="allows attaching to running jobs"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="allows_workspaces",
            field=models.BooleanField(db_default=True, default=True, verbose_name="allows workspaces"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="workspace_hours",
            field=models.PositiveIntegerField(
                blank=True, null=True, verbose_name="workspaces are stopped after (hours)"
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="workspace_idle_minutes",
            field=models.PositiveIntegerField(
                blank=True, null=True, verbose_name="idle workspaces are stopped after (minutes)"
            ),
        ),
    ]
