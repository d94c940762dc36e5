"""The names of the metrics and arguments of a user's runs, for the selection of columns and for filters.

A reader of a shared project gets those of its runs only.
"""

from __future__ import annotations

from django.db import connection
from django.db.models import Count, QuerySet, Value

from jobs.models import Job, Project, RunMetric, RunParam

MAX = 1000
RUNS = 1000  # of a shared project, the newest, whose names a reader gets
# Jumps from name to name by the index of user and name: a plain DISTINCT would read every row of the user.
NAMES = """
WITH RECURSIVE names AS (
    (SELECT name FROM {table} WHERE user_id = %(user)s ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT name FROM {table} WHERE user_id = %(user)s AND name > names.name ORDER BY name LIMIT 1) FROM names
    WHERE names.name IS NOT NULL
)
SELECT {kind} AS kind, name FROM names WHERE name IS NOT NULL LIMIT %(most)s
"""
PARAM, METRIC = 0, 1
BOTH = " UNION ALL ".join(
    f"({NAMES.format(table=model._meta.db_table, kind=kind)})"
    for kind, model in ((PARAM, RunParam), (METRIC, RunMetric))
)


def known(user, shared: Project | None = None, most: int = MAX) -> tuple[list[str], list[str]]:
    """Return the names of the user's arguments and those of the metrics, at most so many of each, in their order."""
    if shared is not None:
        return _of_project(shared, most)
    with connection.cursor() as cursor:
        cursor.execute(BOTH, {"user": user.pk, "most": most})
        rows = cursor.fetchall()
    return [name for kind, name in rows if kind == PARAM], [name for kind, name in rows if kind == METRIC]


def _of_project(shared: Project, most: int) -> tuple[list[str], list[str]]:
    runs = Job.kept.filter(project=shared).order_by("-pk").values("pk")[:RUNS]
    return frequent(runs, most)


def frequent(jobs: QuerySet, most: int) -> tuple[list[str], list[str]]:
    """Return the names of arguments and of metrics that most of these runs have, in the order of their names."""
    counted = (
        model.objects.filter(job__in=jobs).values("name").annotate(n=Count("pk"), kind=Value(kind))
        for kind, model in ((PARAM, RunParam), (METRIC, RunMetric))
    )
    # The database keeps the most frequent ones: a run may have 100,000 names.
    of_params, of_metrics = (rows.order_by("-n", "name")[:most] for rows in counted)
    names_by_kind: dict[int, list[str]] = {PARAM: [], METRIC: []}
    for row in of_params.union(of_metrics, all=True):
        names_by_kind[row["kind"]].append(row["name"])
    return sorted(names_by_kind[PARAM]), sorted(names_by_kind[METRIC])
