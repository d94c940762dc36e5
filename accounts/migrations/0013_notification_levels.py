from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0012_notice_link")]

    operations = [
        migrations.AddField(
            "preference",
            "notification_levels",
            models.JSONField(blank=True, db_default={}, default=dict, verbose_name="notification levels"),
        ),
    ]
