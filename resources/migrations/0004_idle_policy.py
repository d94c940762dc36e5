"""When idle jobs of a tenant are stopped."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("resources", "0003_network"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="idle_cpu_minutes",
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name="idle after (minutes, CPU)"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="idle_cpu_percent",
            field=models.PositiveSmallIntegerField(db_default=5, default=5, verbose_name="idle below (% of its CPU)"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="idle_gpu_minutes",
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name="idle after (minutes, GPU)"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="idle_gpu_percent",
            field=models.PositiveSmallIntegerField(db_default=5, default=5, verbose_name="idle below (% of its GPUs)"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="idle_grace_minutes",
            field=models.PositiveIntegerField(
                db_default=10, default=10, verbose_name="minutes from the warning to the stop"
            ),
        ),
    ]
