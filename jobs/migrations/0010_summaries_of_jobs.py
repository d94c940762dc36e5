"""Fill projects, parameters and summaries of metrics for the jobs that exist."""

from django.db import migrations

from jobs.summaries.arguments import number, parsed

JOBS = 2000  # of one round

PROJECTS = """
INSERT INTO project (user_id, name, "default", readme, board, goals, tags)
SELECT DISTINCT user_id, 'default', true, '', '[]'::jsonb, '{}'::jsonb, '{}'::jsonb FROM job;
UPDATE job SET project_id = project.id FROM project WHERE project.user_id = job.user_id
"""
VALUES = """
INSERT INTO run_metric (job_id, user_id, name, last, min, max, count, step)
SELECT newest.job_id, job.user_id, newest.name, newest.value, sums.low, sums.high, sums.n, newest.step
FROM (
    SELECT max(id) AS newest, count(*) AS n, min(value) AS low, max(value) AS high
    FROM metric_value GROUP BY job_id, name
) AS sums
JOIN metric_value AS newest ON newest.id = sums.newest
JOIN job ON job.id = newest.job_id
"""
REPORTS = """
INSERT INTO run_metric (job_id, user_id, name, last, min, max, count, step)
SELECT newest.job_id, job.user_id, each.name, each.last, each.low, each.high, sums.n, newest.epoch
FROM (
    SELECT job_id, max(seq) AS seq, count(*) AS n, min(accuracy) AS low_accuracy, max(accuracy) AS high_accuracy,
        min(loss) AS low_loss, max(loss) AS high_loss
    FROM metrics GROUP BY job_id
) AS sums
JOIN metrics AS newest ON newest.job_id = sums.job_id AND newest.seq = sums.seq
JOIN job ON job.id = newest.job_id
CROSS JOIN LATERAL (
    VALUES ('accuracy', newest.accuracy, low_accuracy, high_accuracy), ('loss', newest.loss, low_loss, high_loss)
) AS each (name, last, low, high)
"""


def fill_params(apps, schema_editor):
    Job, RunParam = apps.get_model("jobs", "Job"), apps.get_model("jobs", "RunParam")
    last = 0
    while True:
        jobs = list(Job.objects.filter(pk__gt=last).order_by("pk").values_list("pk", "user_id", "args")[:JOBS])
        if not jobs:
            return
        last = jobs[-1][0]
        RunParam.objects.bulk_create(
            RunParam(job_id=pk, user_id=user, name=name, text=text, number=number(text))
            for pk, user, args in jobs
            for name, text in parsed(args).items()
        )


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0009_projects_and_summaries"),
    ]

    operations = [
        migrations.RunSQL(PROJECTS, migrations.RunSQL.noop),
        migrations.RunPython(fill_params, migrations.RunPython.noop),
        migrations.RunSQL(VALUES, migrations.RunSQL.noop),
        migrations.RunSQL(REPORTS, migrations.RunSQL.noop),
    ]
