"""How sweeps and runs of pipelines have ended, also those of earlier releases; and which jobs were pruned."""

from django.db import migrations, models

OUTCOMES = [
    ("finished", "finished"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
    ("pruned", "pruned"),
    ("timed_out", "timed out"),
    ("lost", "lost"),
]
FILL = """
UPDATE {table} SET outcome = CASE
    WHEN state = 'finished' THEN 'finished'
    WHEN reason LIKE 'cancelled%' THEN 'cancelled'
    ELSE 'failed'
END
WHERE state IN ('finished', 'error')
"""
PRUNED = """
UPDATE job SET outcome = 'pruned' FROM sweep_trial
WHERE sweep_trial.job_id = job.id AND sweep_trial.state = 'pruned' AND job.outcome = 'cancelled'
"""


def outcome():
    return models.CharField(
        blank=True, choices=OUTCOMES, db_default="", default="", max_length=10, verbose_name="outcome"
    )


class Migration(migrations.Migration):
    dependencies = [("automation", "0006_titles"), ("jobs", "0039_state_by_outcome")]

    operations = [
        migrations.AddField(model_name="pipelinerun", name="outcome", field=outcome()),
        migrations.AddField(model_name="sweep", name="outcome", field=outcome()),
        migrations.RunSQL(FILL.format(table="sweep"), migrations.RunSQL.noop),
        migrations.RunSQL(FILL.format(table="pipeline_run"), migrations.RunSQL.noop),
        migrations.RunSQL(PRUNED, migrations.RunSQL.noop),
    ]
