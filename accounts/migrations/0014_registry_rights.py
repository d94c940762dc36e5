from django.db import migrations, models

CHOICES = [
    ("read", "read only"),
    ("versions", "register new versions"),
    ("aliases", "register new versions and set aliases"),
]


class Migration(migrations.Migration):
    dependencies = [("accounts", "0013_notification_levels")]

    operations = [
        migrations.AddField(
            model_name="token",
            name="registry",
            field=models.CharField(
                choices=CHOICES, db_default="versions", default="versions", max_length=8, verbose_name="model registry"
            ),
        ),
        migrations.AddField(
            model_name="token",
            name="registry_models",
            field=models.JSONField(blank=True, db_default=[], default=list, verbose_name="registered models"),
        ),
    ]
