from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0042_image")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="gpu_type",
            field=models.CharField(blank=True, db_default="", default="", max_length=63, verbose_name="GPU type"),
        ),
    ]
