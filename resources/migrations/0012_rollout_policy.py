from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("resources", "0011_gpu_products"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="approves_rollouts",
            field=models.BooleanField(db_default=False, default=False, verbose_name="approves rollouts"),
        ),
    ]
