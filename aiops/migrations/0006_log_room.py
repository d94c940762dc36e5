"""Room of lines that were removed, or replaced by a verdict, is free for new ones sooner than PostgreSQL's default of a
fifth of the table would have it: the table on disk stays near the size of its lines.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("aiops", "0005_reading")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE aiops_log SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)",
            "ALTER TABLE aiops_log RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
        ),
    ]
