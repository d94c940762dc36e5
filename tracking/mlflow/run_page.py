"""The runs of one page of a search, as MLflow has them.

A page has hundreds of runs with thousands of metrics and parameters. One statement reads them, and the database writes
these lists as JSON: objects of Python for each of them would take most of the time of a search.
"""

from __future__ import annotations

import orjson

from kernel.database import execute_prepared

from .shown import NOTHING, Found, run_from, uses_of


def _ms(column: str) -> str:
    return f"(extract(epoch FROM {column}) * 1000)::bigint"


# A number that is not finite becomes a text by to_json, as MLflow has it.
RUNS = f"""
SELECT job.id, job.run_id, job.project_id, owner.username, job.name, job.title, job.entry, job.origin, job.state,
    job.reserved, job.outcome, job.notes, {_ms("job.created")}, {_ms("job.started")}, {_ms("job.ended")},
    CASE WHEN job.trashed IS NOT NULL THEN true END, job.tags::text, job.system_tags::text,
    (
        SELECT string_agg('{{"key":' || to_json(name)::text || ',"value":' || to_json(last)::text || ',"timestamp":'
            || {_ms("coalesce(at, job.started, job.created)")} || ',"step":' || step || '}}', ',' ORDER BY name)
        FROM run_metric WHERE job_id = job.id
    ),
    (
        SELECT string_agg('{{"key":' || to_json(name)::text || ',"value":' || to_json(text)::text || '}}', ','
            ORDER BY name)
        FROM run_param WHERE job_id = job.id
    ),
    EXISTS (SELECT FROM run_input WHERE job_id = job.id) OR EXISTS (SELECT FROM model_use WHERE job_id = job.id)
FROM unnest(%(keys)s::bigint[]) WITH ORDINALITY AS wanted(key, place)
JOIN job ON job.id = wanted.key JOIN "user" AS owner ON owner.id = job.user_id
ORDER BY wanted.place
"""


def runs(keys: list[int]) -> list[dict]:
    """Return the runs in this order; those that have gone meanwhile are left out."""
    rows = execute_prepared(RUNS, {"keys": keys})
    used = uses_of([row[0] for row in rows if row[-1]]) if any(row[-1] for row in rows) else {}
    page = []
    for pk, *columns, tags, system_tags, metrics, params, _has_uses in rows:
        run = Found(*columns, orjson.loads(tags), orjson.loads(system_tags))
        page.append(run_from(run, _list(metrics), _list(params), used.get(pk, NOTHING)))
    return page


def _list(texts: str | None) -> orjson.Fragment:
    return orjson.Fragment(f"[{texts or ''}]")
