from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("apps", "0015_phases"),
    ]

    operations = [
        migrations.AddField(
            model_name="rollout",
            name="proposed",
            field=models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="percent to be approved"),
        ),
    ]
