"""What else a sender says of a log line."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("aiops", "0008_training_words"),
    ]

    operations = [
        migrations.AddField(
            model_name="logline",
            name="attributes",
            field=models.JSONField(blank=True, null=True, verbose_name="attributes"),
        ),
    ]
