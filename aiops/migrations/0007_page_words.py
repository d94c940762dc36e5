"""Nothing: words only were changed, which are in the earlier migrations, where they cost a first start no time."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("aiops", "0006_log_room"),
    ]

    operations = []
