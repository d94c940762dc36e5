"""The state on pages comes from the outcome. PostgreSQL changes no generated column: it is made anew, with its indexes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0038_outcome_of_ended")]

    operations = [
        migrations.RemoveIndex(model_name="job", name="job_by_state"),
        migrations.RemoveIndex(model_name="job", name="job_project_state"),
        migrations.RemoveField(model_name="job", name="display_state"),
        migrations.AddField(
            model_name="job",
            name="display_state",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(reserved=True, state="creating", then=models.Value("starting")),
                    models.When(state="creating", then=models.Value("queued")),
                    models.When(outcome__in=("cancelled", "pruned"), state="error", then=models.F("outcome")),
                    models.When(state="error", then=models.Value("failed")),
                    default=models.F("state"),
                    output_field=models.CharField(),
                ),
                output_field=models.CharField(max_length=10),
                verbose_name="state on pages",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("trashed", None)), fields=["user", "display_state", "-id"], name="job_by_state"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("trashed", None)),
                fields=["user", "project", "display_state", "-id"],
                name="job_project_state",
            ),
        ),
    ]
