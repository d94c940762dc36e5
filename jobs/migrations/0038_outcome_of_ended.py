"""How the jobs of earlier releases have ended, from the text that said so until now.

Each batch is a transaction of its own; one that was stopped goes on where no row is left behind.
"""

from django.db import migrations

BATCH = 20_000  # ids
FILL = """
UPDATE job SET outcome = CASE
    WHEN state = 'finished' THEN 'finished'
    WHEN reason LIKE 'cancelled%%' THEN 'cancelled'
    WHEN reason LIKE 'the time limit of %% s is exceeded%%' THEN 'timed_out'
    WHEN reason LIKE 'the run no longer exists%%' THEN 'lost'
    ELSE 'failed'
END
WHERE id > %s AND id <= %s AND outcome = '' AND state IN ('finished', 'error')
"""


def fill(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(min(id), 0) - 1, coalesce(max(id), 0) FROM job")
        first, last = cursor.fetchone()
        for begin in range(first, last, BATCH):
            cursor.execute(FILL, [begin, begin + BATCH])


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("jobs", "0037_outcome")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
