from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("apps", "0015_phases"),
    ]

    operations = [
        migrations.AddField(
            model_name="rollout",
            name="base_failures",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="rollout",
            name="base_of",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="rollout",
            name="base_requests",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="rollout",
            name="proposed",
            field=models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="percent to be approved"),
        ),
    ]
