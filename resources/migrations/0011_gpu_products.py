from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0010_interactive_policy")]

    operations = [
        migrations.CreateModel(
            name="GpuProduct",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(blank=True, max_length=200, unique=True, verbose_name="product")),
                ("count", models.PositiveIntegerField(verbose_name="GPUs")),
            ],
            options={
                "verbose_name": "GPU product",
                "verbose_name_plural": "GPU products",
                "db_table": "gpu_product",
            },
        ),
    ]
