from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0041_named_environments")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="image",
            field=models.CharField(blank=True, db_default="", default="", max_length=63, verbose_name="image"),
        ),
    ]
