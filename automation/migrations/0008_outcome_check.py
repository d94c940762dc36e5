from django.db import migrations, models

OUTCOMES = ["", "finished", "failed", "cancelled", "pruned", "timed_out", "lost"]


class Migration(migrations.Migration):
    dependencies = [("automation", "0007_outcome")]

    operations = [
        migrations.AddConstraint(
            model_name="pipelinerun",
            constraint=models.CheckConstraint(condition=models.Q(outcome__in=OUTCOMES), name="pipeline_run_outcome"),
        ),
        migrations.AddConstraint(
            model_name="sweep",
            constraint=models.CheckConstraint(condition=models.Q(outcome__in=OUTCOMES), name="sweep_outcome"),
        ),
    ]
