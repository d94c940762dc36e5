"""The secrets of webhooks of the registry are encrypted; the problem of a delivery may be of any length."""

from django.db import migrations, models

from kernel import sealing

PURPOSE = "registry webhook"


def seal(apps, schema_editor):
    webhooks = apps.get_model("models_app", "RegistryWebhook").objects.exclude(secret="")
    for row in webhooks.exclude(secret__startswith=sealing.PREFIX):
        row.secret = sealing.seal(row.secret, PURPOSE)
        row.save(update_fields=["secret"])


def unseal(apps, schema_editor):
    for row in apps.get_model("models_app", "RegistryWebhook").objects.filter(secret__startswith=sealing.PREFIX):
        row.secret = sealing.unseal(row.secret, PURPOSE)
        row.save(update_fields=["secret"])


class Migration(migrations.Migration):
    dependencies = [
        ("models_app", "0005_imported"),
    ]

    operations = [
        migrations.AlterField(
            model_name="registrywebhook",
            name="secret",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AlterField(
            model_name="registrydelivery",
            name="problem",
            field=models.TextField(blank=True, db_default="", default="", verbose_name="problem"),
        ),
        migrations.RunPython(seal, unseal),
    ]
