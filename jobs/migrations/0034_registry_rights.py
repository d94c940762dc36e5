from django.db import migrations, models

CHOICES = [
    ("read", "read only"),
    ("versions", "register new versions"),
    ("aliases", "register new versions and set aliases"),
]


class Migration(migrations.Migration):
    dependencies = [("jobs", "0033_words_of_buttons")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="registry",
            field=models.CharField(
                choices=CHOICES, db_default="versions", default="versions", max_length=8, verbose_name="model registry"
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="registry_models",
            field=models.JSONField(blank=True, db_default=[], default=list, verbose_name="registered models"),
        ),
    ]
