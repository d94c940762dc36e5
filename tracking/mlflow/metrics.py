"""Points of metrics: reported one by one or in batches, and read again as a history."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from django.db import connection

from jobs.models import Job
from kernel.effects import READ, SUBMIT
from mlflow_protocol import limits
from mlflow_protocol.protocol import Call, Routes, effect, for_jobs
from mlflow_protocol.reading import MAX_MS, Fields, WrongField, number_of, number_out, whole_of, wrong
from tracking.metrics.series import MEASURED

from . import logged, lookup, writing
from .writing import Points

HISTORY = 25_000  # points of one page
INTERVAL, MAX_RUNS = 2500, 100  # points of each run, and runs of one request
REPORT, VALUE = "m", "v"  # where a point is: in a report of the contract's four numbers, or a value of its own
# By the index of names: see blocks.FIRST_VALUES.
VALUES = """
SELECT id, value, (extract(epoch FROM at) * 1000)::bigint, step FROM metric_value
WHERE job_id = %s AND (name, id) > (%s, %s) AND name <= %s ORDER BY name, id LIMIT %s
"""
METRICS = """
SELECT seq, {name}, (extract(epoch FROM at) * 1000)::bigint, epoch FROM metrics
WHERE job_id = %s AND seq > %s AND {name} IS NOT NULL ORDER BY seq LIMIT %s
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
        [(limits.key(name), value[: limits.MAX_PARAM]) for name, value in params],
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
        if stamp is None or not 0 <= stamp <= MAX_MS:
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
    points: list[tuple] = []
    if kind == REPORT:
        if name in MEASURED:
            points = _rows(METRICS.format(name=name), REPORT, [job.pk, after, most + 1])
        after = 0
    if len(points) <= most:
        points += _rows(VALUES, VALUE, [job.pk, name, after, name, most + 1 - len(points)])
    answer: dict = {
        "metrics": [
            {"key": name, "value": number_out(value), "timestamp": at, "step": step}
            for _kind, _id, value, at, step in points[:most]
        ]
    }
    if len(points) > most:
        answer["next_page_token"] = _token(*points[most - 1][:2])
    return answer


@effect(READ)
@for_jobs
def get_histories(call: Call) -> dict:
    """Return the points of one metric of several runs, as MLflow's web interface asks for them: by run and time."""
    keys = sorted(set(_runs_of(call, "run_id")))
    name = call.fields.text("metric_key", required=True)
    most, points = min(HISTORY, call.fields.whole("max_results", HISTORY, low=1)), []
    for job in _jobs_of(call, keys):
        if len(points) < most:
            points += _points_of(job, name, most)
    return {"metrics": points[:most]}


@effect(READ)
@for_jobs
def get_interval(call: Call) -> dict:
    """Return points of one metric of several runs between two steps, at most `max_results` of each: the first and the
    last, and those at equal distances between them.
    """
    fields, keys = call.fields, _runs_of(call, "run_ids")
    name, most = fields.text("metric_key", required=True), fields.whole("max_results", INTERVAL, low=1, high=INTERVAL)
    first, last = (fields.whole(key, 0, low=-(2**63), high=2**63 - 1) for key in ("start_step", "end_step"))
    given = [key in fields for key in ("start_step", "end_step")]
    if given[0] != given[1]:
        raise WrongField("If either start step or end step are specified, both must be specified.")
    if first > last:
        raise WrongField(f"end_step must be greater than start_step. Found start_step={first} and end_step={last}.")
    points = []
    for job in _jobs_of(call, keys):
        rows = [row for row in _points_of(job, name, HISTORY) if not given[0] or first <= row["step"] <= last]
        points += _sampled(rows, most)
    return {"metrics": points}


def _runs_of(call: Call, field: str) -> list[str]:
    keys = call.fields.texts(field)
    if not keys:
        raise WrongField(f"Missing value for required parameter '{field}'.")
    if len(keys) > MAX_RUNS:
        raise WrongField(f"a request cannot specify more than {MAX_RUNS} run_ids. Received {len(keys)} run_ids.")
    return keys


def _jobs_of(call: Call, keys: list[str]) -> Iterator[Job]:
    for key in keys:
        yield lookup.run(call, text=key)


def _points_of(job: Job, name: str, most: int) -> list[dict]:
    """Return the points of a metric by time, step and value."""
    points = _rows(METRICS.format(name=name), REPORT, [job.pk, 0, most]) if name in MEASURED else []
    points += _rows(VALUES, VALUE, [job.pk, name, 0, name, most])
    run = job.run_id.hex
    rows = sorted((at, step, value) for _kind, _id, value, at, step in points)
    return [
        {"key": name, "value": number_out(value), "timestamp": at, "step": step, "run_id": run}
        for at, step, value in rows
    ]


def _sampled(rows: list[dict], most: int) -> list[dict]:
    """Return at most that many rows: the first, the last, and those between them at equal distances, by step."""
    rows = sorted(rows, key=lambda row: (row["step"], row["timestamp"]))
    if len(rows) <= most:
        return rows
    return [rows[at * (len(rows) - 1) // max(most - 1, 1)] for at in range(most)]


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
    "metrics/get-history-bulk": {"GET": get_histories},
    "metrics/get-history-bulk-interval": {"GET": get_interval},
}
