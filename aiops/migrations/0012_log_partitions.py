"""Log lines are in a table that is partitioned by time, so that old ones are removed by dropping a partition.

What is stored becomes the first partition as it is, whatever its size. Its ids go to a narrow table, since a partition
cannot say that an id is unique in the others, and the lines of each minute are counted. Lines of the future, which
stayed on top of every list, get the present as their time, and keep what was sent as an attribute.
"""

import time

import django.contrib.postgres.indexes
from django.db import migrations, models

FIRST = "aiops_log_first"
AHEAD_MS = 600_000
OPTIONS = "(autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)"
CLAMP = """
UPDATE aiops_log SET time = %(now)s, attributes = coalesce(attributes, '{}'::jsonb) || jsonb_build_object('sent_time',
    to_char(to_timestamp(time / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
WHERE time > %(now)s + %(ahead)s
"""
KEYS = """
INSERT INTO aiops_log_key (key, time, line)
SELECT left(encode(sha256(convert_to(line_id, 'UTF8')), 'hex'), 32)::uuid, time, id FROM aiops_log ORDER BY id
"""
MINUTES = """
INSERT INTO aiops_log_minute (minute, cluster, namespace, deployment, unjudged, normal, anomalies)
SELECT time / 60000, cluster, namespace, deployment, count(*) FILTER (WHERE level NOT IN ('Normal', 'Anomaly')),
    count(*) FILTER (WHERE level = 'Normal'), count(*) FILTER (WHERE level = 'Anomaly')
FROM aiops_log GROUP BY 1, 2, 3, 4
"""
# The new index names are those of the model's state; partitions get theirs from these.
INDEXES = (
    "CREATE INDEX aiops_log_workload ON aiops_log (cluster, namespace, deployment, time DESC)",
    "CREATE INDEX aiops_log_anomalies ON aiops_log (time DESC) WHERE level = 'Anomaly'",
    "CREATE INDEX aiops_log_unjudged ON aiops_log (time) WHERE level = '' AND log_type = 'workload'",
    "CREATE INDEX aiops_log_template ON aiops_log (template_id, time DESC) WHERE template_id IS NOT NULL",
    "CREATE INDEX aiops_log_number ON aiops_log USING brin (id) WITH (pages_per_range = 32)",
)


def part(apps, schema_editor) -> None:
    """Put a partitioned table in the place of the table, which becomes its first partition."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute("LOCK TABLE aiops_log IN ACCESS EXCLUSIVE MODE")
        now = int(time.time() * 1000)
        cursor.execute(CLAMP, {"now": now, "ahead": AHEAD_MS})
        cursor.execute(KEYS)
        cursor.execute(MINUTES)
        cursor.execute("SELECT coalesce(max(time), 0), coalesce(max(id), 0) FROM aiops_log")
        newest, last = cursor.fetchone()
        for statement in _undressed(cursor):
            cursor.execute(statement)
        cursor.execute("CREATE TABLE aiops_log (LIKE aiops_log_first INCLUDING DEFAULTS) PARTITION BY RANGE (time)")
        cursor.execute(f"CREATE SEQUENCE aiops_log_number_seq OWNED BY aiops_log.id START {last + 1}")
        cursor.execute("ALTER TABLE aiops_log ALTER id SET DEFAULT nextval('aiops_log_number_seq')")
        cursor.execute("ALTER TABLE aiops_log ADD PRIMARY KEY (time, id)")
        for statement in INDEXES:
            cursor.execute(statement)
        bound = max(newest + 1, now)
        cursor.execute(f"ALTER TABLE aiops_log ATTACH PARTITION {FIRST} FOR VALUES FROM (MINVALUE) TO ({bound})")
        active = f"aiops_log_{bound}"
        cursor.execute(
            f"CREATE TABLE {active} PARTITION OF aiops_log FOR VALUES FROM ({bound}) TO (MAXVALUE) WITH {OPTIONS}"
        )


def _undressed(cursor) -> list[str]:
    """Return what takes off the table's name, numbering, constraints and indexes."""
    cursor.execute("SELECT conname FROM pg_constraint WHERE conrelid = 'aiops_log'::regclass AND contype IN ('p', 'u')")
    constraints = [name for (name,) in cursor.fetchall()]
    cursor.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'aiops_log'")
    indexes = [name for (name,) in cursor.fetchall() if name not in constraints]
    return [
        *(f'ALTER TABLE aiops_log DROP CONSTRAINT "{name}"' for name in constraints),
        *(f'DROP INDEX "{name}"' for name in indexes),
        "ALTER TABLE aiops_log ALTER id DROP IDENTITY IF EXISTS",
        f"ALTER TABLE aiops_log RENAME TO {FIRST}",
    ]


class Migration(migrations.Migration):
    dependencies = [("aiops", "0011_owners_labels")]

    operations = [
        migrations.CreateModel(
            name="LogKey",
            fields=[
                ("key", models.UUIDField(primary_key=True, serialize=False)),
                ("time", models.BigIntegerField()),
                ("line", models.BigIntegerField()),
            ],
            options={"db_table": "aiops_log_key"},
        ),
        migrations.CreateModel(
            name="LogMinute",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("minute", models.BigIntegerField()),
                ("cluster", models.CharField(max_length=253)),
                ("namespace", models.CharField(max_length=253)),
                ("deployment", models.CharField(max_length=253)),
                ("unjudged", models.BigIntegerField(default=0)),
                ("normal", models.BigIntegerField(default=0)),
                ("anomalies", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "aiops_log_minute",
                "constraints": [
                    models.UniqueConstraint(
                        fields=["minute", "cluster", "namespace", "deployment"], name="aiops_log_minute_once"
                    )
                ],
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(part)],
            state_operations=[
                migrations.RemoveIndex("logline", "aiops_log_time"),
                migrations.RemoveIndex("logline", "aiops_log_unjudged"),
                migrations.RemoveIndex("logline", "aiops_log_template"),
                migrations.AlterField("logline", "line_id", models.CharField(max_length=100, verbose_name="id")),
                migrations.AddIndex(
                    "logline",
                    models.Index(
                        fields=["time"],
                        condition=models.Q(("level", ""), ("log_type", "workload")),
                        name="aiops_log_unjudged",
                    ),
                ),
                migrations.AddIndex(
                    "logline",
                    models.Index(
                        fields=["template_id", "-time"],
                        condition=models.Q(("template_id__isnull", False)),
                        name="aiops_log_template",
                    ),
                ),
                migrations.AddIndex(
                    "logline",
                    django.contrib.postgres.indexes.BrinIndex(
                        fields=["id"], name="aiops_log_number", pages_per_range=32
                    ),
                ),
            ],
        ),
    ]
