"""Points of metrics: reported one by one or in batches, and read again as a history."""

from __future__ import annotations

import base64
import json

from django.db import connection

from jobs.metrics.series import CONTRACT
from kernel.effects import READ, SUBMIT

from . import limits, logged, lookup, writing
from .protocol import Call, Routes, effect, for_jobs
from .reading import MOST_MS, Fields, WrongField, number_of, number_out, whole_of, wrong
from .writing import Points

HISTORY = 25_000  # points of one page
REPORT, VALUE = "m", "v"  # where a point is: in a report of the contract's four numbers, or a value of its own
# By the index of names: see blocks.FIRST_VALUES.
VALUES = """
SELECT id, value, (extract(epoch FROM at) * 1000)::bigint, step FROM metric_value
WHERE job_id = %s AND (name, id) > (%s, %s) AND name <= %s ORDER BY name, id LIMIT %s
"""
METRICS = """
SELECT seq, {name}, (extract(epoch FROM at) * 1000)::bigint, epoch FROM metrics
WHERE job_id = %s AND seq > %s ORDER BY seq LIMIT %s
"""


@effect(SUBMIT)
@for_jobs
def log_metric(call: Call) -> dict:
    run = lookup.given_run(call)
    writing.write(call, run, points_of([call.fields.given], single=True))
    if "model_id" in call.fields:
        logged.note_metrics(call, run, [call.fields.given])
    return {}


@effect(SUBMIT)
@for_jobs
def log_batch(call: Call) -> dict:
    fields = call.fields
    if fields.size > limits.BATCH_BYTES:
        raise WrongField(
            f"Batched logging API requests must be at most {limits.BATCH_BYTES} bytes, got a request of size "
            f"{fields.size}."
        )
    run, metrics = lookup.given_run(call), fields.given.get("metrics") or []
    params, tags = fields.pairs("params"), fields.pairs("tags")
    if not isinstance(metrics, list):
        raise wrong("metrics", metrics, "must be a list")
    limits.batch("metrics", len(metrics), limits.BATCH_METRICS)
    limits.batch("params", len(params), limits.BATCH_PARAMS)
    limits.batch("tags", len(tags), limits.BATCH_TAGS)
    limits.batch("metrics, params, and tags", len(metrics) + len(params) + len(tags), limits.BATCH_ALL)
    limits.unique(name for name, _value in params)
    writing.write(
        call,
        run,
        points_of(metrics) if metrics else None,
        [(limits.key(name), value[: limits.MOST_PARAM]) for name, value in params],
        writing.sorted_tags(tags) if tags else None,
    )
    if of_models := [row for row in metrics if "model_id" in row]:
        logged.note_metrics(call, run, of_models)
    return {}


def points_of(rows: list, *, single: bool = False) -> Points:
    """Return the columns of metrics as they were sent. Raises WrongField naming the first that is wrong.

    `single`: the fields of the one metric are those of the request.
    """
    columns = Points([], [], [], [])
    known: set[str] = set()
    for place, row in enumerate(rows):
        within = "" if single else f"metrics[{place}]."
        try:
            name, value, at, step = row["key"], row["value"], row["timestamp"], row.get("step")
        except (TypeError, KeyError):
            raise _incomplete(row, within) from None
        if name.__class__ is not str or name not in known:
            known.add(limits.key(Fields({"key": name}, within).text("key", required=True), "metric"))
        number = value if value.__class__ is float else number_of(value)
        stamp = at if at.__class__ is int else whole_of(at)
        step = step if step.__class__ is int else 0 if step is None else whole_of(step)
        if number is None:
            raise wrong(f"{within}value", value, "must be a number")
        if stamp is None or not 0 <= stamp <= MOST_MS:
            raise wrong(f"{within}timestamp", at, "must be milliseconds since 1970, at most of the year 9999")
        if step is None or not -(2**63) <= step < 2**63:
            raise wrong(f"{within}step", row["step"], "must be a whole number of 64 bits")
        columns.names.append(name)
        columns.steps.append(step)
        columns.values.append(number)
        columns.times.append(stamp)
    return columns


def _incomplete(row, within: str) -> WrongField:
    lacking = next((name for name in ("key", "value", "timestamp") if isinstance(row, dict) and name not in row), None)
    if lacking is None:
        return wrong(within.rstrip("."), row, "must be an object")
    return WrongField(f"Missing value for required parameter '{within}{lacking}'.")


@effect(READ)
@for_jobs
def get_history(call: Call) -> dict:
    """Return the points of one metric in the order of their reports, a page at a time."""
    job = lookup.run(call)
    name = call.fields.text("metric_key", required=True)
    most = min(HISTORY, call.fields.whole("max_results", HISTORY, low=1))
    kind, after = _place(call.fields.text("page_token"))
    found: list[tuple] = []
    if kind == REPORT:
        if name in CONTRACT:
            found = _rows(METRICS.format(name=name), REPORT, [job.pk, after, most + 1])
        after = 0
    if len(found) <= most:
        found += _rows(VALUES, VALUE, [job.pk, name, after, name, most + 1 - len(found)])
    answer: dict = {
        "metrics": [
            {"key": name, "value": number_out(value), "timestamp": at, "step": step}
            for _kind, _id, value, at, step in found[:most]
        ]
    }
    if len(found) > most:
        answer["next_page_token"] = _token(*found[most - 1][:2])
    return answer


def _rows(statement: str, kind: str, params: list) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return [(kind, *row) for row in cursor.fetchall()]


def _token(kind: str, after: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([kind, after]).encode()).decode()


def _place(token: str) -> tuple[str, int]:
    """Return where a page begins: after which row of which table. Raises WrongField."""
    if not token:
        return REPORT, 0
    try:
        kind, after = json.loads(base64.urlsafe_b64decode(token))
    except (ValueError, TypeError, RecursionError):
        kind, after = "", 0
    if kind not in (REPORT, VALUE) or type(after) is not int or not 0 <= after < 2**63:
        raise wrong("page_token", token, "must be that of an earlier answer")
    return kind, after


ROUTES: Routes = {
    "runs/log-metric": {"POST": log_metric},
    "runs/log-batch": {"POST": log_batch},
    "metrics/get-history": {"GET": get_history},
}
