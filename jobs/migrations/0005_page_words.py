"""Nothing: words only were changed, which are in the earlier migrations, where they cost a first start no time."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_metrics_by_time"),
    ]

    operations = []
