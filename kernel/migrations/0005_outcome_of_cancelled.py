"""Which changes of earlier releases were cancels, from the text that said so until now. Each batch is a transaction."""

from django.db import migrations

BATCH = 100_000  # ids
FILL = """
UPDATE state_change SET outcome = 'cancelled'
WHERE id > %s AND id <= %s AND outcome = '' AND target = 'error' AND reason LIKE 'cancelled%%'
"""


def fill(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(min(id), 0) - 1, coalesce(max(id), 0) FROM state_change")
        first, last = cursor.fetchone()
        for begin in range(first, last, BATCH):
            cursor.execute(FILL, [begin, begin + BATCH])


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("kernel", "0004_outcome")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
