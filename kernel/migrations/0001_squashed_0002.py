"""The tables of a new database, at once: what 0001 to 0002 make one after the other in an older one."""

from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [("kernel", "0001_initial"), ("kernel", "0002_longer_names")]

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="StateChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(auto_now_add=True, verbose_name="at")),
                ("kind", models.CharField(max_length=32, verbose_name="kind")),
                ("owner", models.CharField(max_length=64, verbose_name="owner")),
                ("name", models.CharField(max_length=256, verbose_name="name")),
                ("object_id", models.BigIntegerField(verbose_name="object")),
                ("transition", models.CharField(max_length=32, verbose_name="transition")),
                ("source", models.CharField(max_length=16, verbose_name="from")),
                ("target", models.CharField(max_length=16, verbose_name="to")),
                ("by", models.CharField(max_length=80, verbose_name="who")),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
            ],
            options={
                "verbose_name": "state change",
                "verbose_name_plural": "state changes",
                "db_table": "state_change",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["kind", "object_id"], name="state_change_object"),
                    models.Index(fields=["owner", "-id"], name="state_change_owner"),
                ],
            },
        ),
    ]
