from django.db import migrations, models

OUTCOMES = [
    ("finished", "finished"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
    ("pruned", "pruned"),
    ("timed_out", "timed out"),
    ("lost", "lost"),
]


class Migration(migrations.Migration):
    dependencies = [("jobs", "0036_project_title")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="outcome",
            field=models.CharField(
                blank=True, choices=OUTCOMES, db_default="", default="", max_length=10, verbose_name="outcome"
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(outcome__in=["", *(value for value, _label in OUTCOMES)]), name="job_outcome"
            ),
        ),
    ]
