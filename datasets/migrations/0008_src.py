from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0007_title"),
    ]

    operations = [
        migrations.AddField(
            model_name="dataset",
            name="src",
            field=models.CharField(blank=True, db_default="", default="", max_length=500, verbose_name="source"),
        ),
    ]
