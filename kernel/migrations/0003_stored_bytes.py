"""What the rows of each user take in the database (kernel.stored)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("kernel", "0002_longer_names")]

    operations = [
        migrations.CreateModel(
            name="StoredBytes",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("user_id", models.BigIntegerField(db_index=True)),
                ("size", models.BigIntegerField()),
            ],
            options={"db_table": "stored_bytes"},
        ),
    ]
