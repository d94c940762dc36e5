import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("apps", "0017_records"),
        ("jobs", "0044_traces"),
        ("models_app", "0011_named_environments"),
    ]

    operations = [
        migrations.CreateModel(
            name="Scoring",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("output", models.CharField(max_length=50, verbose_name="dataset")),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="scoring",
                        to="jobs.job",
                        verbose_name="job",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="scorings",
                        to="models_app.model",
                        verbose_name="model",
                    ),
                ),
            ],
            options={
                "verbose_name": "scoring",
                "verbose_name_plural": "scorings",
                "db_table": "app_scoring",
            },
        ),
    ]
