"""The writer of what MLflow's clients report: points, parameters and tags, in one transaction.

It goes straight to the database, since a client reads what it has written. A point is known by its run, key, step, time
and value: one that is sent again, as clients do after an answer was lost, is stored once. Of a key's values the last is
the one with the highest step, then the latest time, then the highest value, as with MLflow's own server.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

from django.conf import settings
from django.db import DatabaseError, IntegrityError, connection, transaction
from psycopg.types.json import Jsonb
from psycopg.types.numeric import Int8

from jobs.models import Block
from jobs.summaries import arguments, labels
from kernel import after_commit
from kernel.database import execute_prepared, violated
from mlflow_protocol import limits
from mlflow_protocol.protocol import Call, MlflowError, missing
from mlflow_protocol.reading import WrongField
from tracking.metrics import blocks
from tracking.metrics.recording import too_many

from . import lookup

log = logging.getLogger(__name__)

NOTE, NAME = "mlflow.note.content", "mlflow.runName"
WAKE_S = 0.3  # between two wakes of a run's pages by one process

LOCK = """
SELECT id, name, attempt, values_kept, trashed IS NOT NULL AS trashed FROM job
WHERE run_id = %(run)s AND user_id = %(user)s AND state <> 'deleting'
    AND (%(own)s = 0 OR id = %(own)s OR parent_id = %(own)s)
FOR NO KEY UPDATE
"""
REPEATED = "ON CONFLICT (job_id, msg_id, name) DO NOTHING"
_POINTS = f"""
fresh AS (
    INSERT INTO metric_value (job_id, attempt, name, step, value, at, msg_id)
    SELECT {{job}}, {{attempt}}, name, step, value, to_timestamp(ms / 1000.0), concat(step, ':', ms, ':', value)
    FROM {{run}}unnest(%(names)s::text[], %(steps)s::bigint[], %(values)s::float8[], %(times)s::bigint[])
        AS new(name, step, value, ms)
    {REPEATED}
    RETURNING name, step, value, at
), summed AS (
    INSERT INTO run_metric AS known (job_id, user_id, name, last, min, max, count, step, at)
    SELECT {{job}}, %(user)s, name, (array_agg(value ORDER BY step DESC, at DESC, value DESC))[1],
        min(value), coalesce(max(value) FILTER (WHERE value <> 'NaN'), 'NaN'), count(*), max(step),
        (array_agg(at ORDER BY step DESC, at DESC))[1]
    FROM fresh GROUP BY name ORDER BY name
    ON CONFLICT (job_id, name) DO UPDATE SET
        last = CASE WHEN (known.step, coalesce(known.at, '-infinity'), known.last)
            <= (EXCLUDED.step, EXCLUDED.at, EXCLUDED.last) THEN EXCLUDED.last ELSE known.last END,
        at = CASE WHEN (known.step, coalesce(known.at, '-infinity')) <= (EXCLUDED.step, EXCLUDED.at)
            THEN EXCLUDED.at ELSE known.at END,
        step = greatest(known.step, EXCLUDED.step),
        count = known.count + EXCLUDED.count,
        min = least(known.min, EXCLUDED.min),
        max = coalesce(greatest(nullif(known.max, 'NaN'), nullif(EXCLUDED.max, 'NaN')), 'NaN')
    RETURNING name, count, (xmax = 0) AS made
), counted AS (
    UPDATE job SET values_kept = values_kept + (SELECT count(*) FROM fresh), heard = now() WHERE id = {{job}}
), added AS (
    SELECT bool_or(made) AS made,
        array_agg(name) FILTER (WHERE count / {blocks.SIZE} > (count - added) / {blocks.SIZE}) AS due
    FROM summed JOIN (SELECT name, count(*) AS added FROM fresh GROUP BY name) AS added USING (name)
)
"""
POINTS = f"WITH {_POINTS.format(job='%(job)s', attempt='%(attempt)s::smallint', run='')} SELECT made, due FROM added"
# All of it in one statement, in the usual case: the run can be written, and this brings it to no limit.
_ONLY = "(SELECT id FROM open)"
AT_ONCE = f"""
WITH run AS ({LOCK}), open AS (
    SELECT id, greatest(attempt, 1)::smallint AS attempt FROM run
    WHERE NOT trashed AND values_kept + %(count)s <= %(most)s AND (values_kept + %(count)s <= {limits.RUN_KEYS}
        OR NOT EXISTS (SELECT FROM unnest(%(names)s::text[]) AS name WHERE NOT EXISTS (
            SELECT FROM run_metric AS known WHERE known.job_id = run.id AND known.name = name.name
        )))
), {_POINTS.replace(REPEATED, "").format(job=_ONLY, attempt="open.attempt", run="open, ")}
SELECT run.id, run.name, due FROM run, open, added
"""
# Without the look for each point: most requests are not repeated, and for one that is the constraint fails.
NEW_POINTS = POINTS.replace(REPEATED, "")
ONCE = "value_message_once"
_TEXTS = '","'  # between the texts of an array
MANY_KEYS = "SELECT count(*) > %s FROM (SELECT FROM run_metric WHERE job_id = %s LIMIT %s) AS keys"
# A parameter is written once by each attempt of a job. One that was only read from the job's arguments gives way to
# what the script logs.
PARAMS = """
INSERT INTO run_param AS known (job_id, user_id, attempt, name, text, number, source)
SELECT %s, %s, %s, name, value, number, 'parameter' FROM unnest(%s::text[], %s::text[], %s::float8[])
    AS new(name, value, number) ORDER BY name
ON CONFLICT (job_id, name) DO UPDATE SET text = EXCLUDED.text, number = EXCLUDED.number, source = EXCLUDED.source,
    attempt = EXCLUDED.attempt
WHERE known.source <> 'parameter' OR known.text = EXCLUDED.text OR known.attempt < EXCLUDED.attempt
RETURNING name
"""
TAGS = """
UPDATE job SET tags = tags || %s, system_tags = system_tags || %s, title = coalesce(%s, title),
    notes = coalesce(%s, notes), heard = now()
WHERE id = %s
RETURNING (SELECT count(*) FROM jsonb_object_keys(tags)), (SELECT count(*) FROM jsonb_object_keys(system_tags))
"""


class Points(NamedTuple):
    """The columns of new points."""

    names: list[str]
    steps: list[int]
    values: list[float]
    times: list[int]


class Tags(NamedTuple):
    """What tags become: labels of people, tags of the system, the title and the notes."""

    own: dict[str, str]
    system: dict[str, str]
    title: str | None
    notes: str | None


class Locked(NamedTuple):
    """The row of a run that is being written."""

    pk: int
    name: str
    attempt: int
    kept: int
    trashed: bool


def sorted_tags(pairs: Iterable[tuple[str, str]]) -> Tags:
    """Return checked tags by what they become. Raises WrongField or Refused."""
    own: dict[str, str] = {}
    system: dict[str, str] = {}
    title = notes = None
    for name, value in pairs:
        key, value = limits.tag_key(name), value[: limits.MAX_TAG]
        if key == NOTE:
            notes = labels.notes(value, NOTE)
        elif key == NAME:
            title = value[: limits.MAX_NAME]
        else:
            (system if key.startswith(limits.SYSTEM) else own)[key] = value
    return Tags(own, system, title, notes)


def write(
    call: Call,
    run: str,
    points: Points | None = None,
    params: list[tuple[str, str]] | None = None,
    tags: Tags | None = None,
) -> None:
    """Store what a client has reported of a run: all of it or nothing. Raises MlflowError, WrongField."""
    try:
        written = None if params or tags or not points else _write_at_once(call, run, points)
        job, name, due = written or _write(call, run, points, params, tags, NEW_POINTS)
    except IntegrityError as problem:
        if violated(problem) != ONCE:
            raise
        job, name, due = _write(call, run, points, params, tags, POINTS)
    for key in due:
        _summarise(job, key)
    PAGES.wake(job, call.caller.username, name)


def _write_at_once(call: Call, run: str, points: Points) -> tuple[int, str, list[str]] | None:
    """Store points as `_write` does, by one statement that is a transaction of its own: a third of the exchanges with
    the server. Return None, with nothing stored, where that finds out what is wrong, or how far a limit goes.
    """
    key = lookup.run_key(run)
    if key is None:
        return None
    given = {
        "run": key, "user": Int8(call.caller.user_id), "own": Int8(call.caller.job_id),
        "count": Int8(len(points.names)), "most": Int8(settings.JOB_VALUES), **_arrays(points),
    }  # fmt: skip
    with transaction.atomic() if connection.in_atomic_block else contextlib.nullcontext():
        rows = execute_prepared(AT_ONCE, given)
    return (rows[0][0], rows[0][1], rows[0][2] or []) if rows else None


def _write(call: Call, run: str, points, params, tags, statement: str) -> tuple[int, str, list[str]]:
    """Store a report in one transaction; return its run's key and name, and the keys whose blocks may be due."""
    due: list[str] = []
    with transaction.atomic(), connection.cursor() as cursor:
        job = _lock(call, run)
        if params:
            _write_params(cursor, call, job, params)
        if points:
            due = _write_points(cursor, call, job, points, statement)
        if tags:
            _write_tags(cursor, job, tags)
    return job.pk, job.name, due


def _lock(call: Call, run: str) -> Locked:
    own, key = call.caller.job_id, lookup.run_key(run)
    if key is None:
        raise missing("Run", run)
    rows = execute_prepared(LOCK, {"run": key, "user": Int8(call.caller.user_id), "own": Int8(own)})
    if not rows:
        raise lookup.refused(call, run)
    job = Locked(*rows[0])
    if job.trashed:
        raise lookup.deleted(run)
    return job


def _write_points(cursor, call: Call, job: Locked, points: Points, statement: str) -> list[str]:
    """Store points; return the keys whose blocks may have to be made."""
    if job.kept + len(points.names) > settings.JOB_VALUES:
        raise MlflowError("INVALID_PARAMETER_VALUE", str(too_many()))
    run = {"job": Int8(job.pk), "user": Int8(call.caller.user_id), "attempt": Int8(max(1, job.attempt))}
    [(made, long)] = execute_prepared(statement, run | _arrays(points))
    if made and job.kept + len(points.names) > limits.RUN_KEYS:
        cursor.execute(MANY_KEYS, [limits.RUN_KEYS, job.pk, limits.RUN_KEYS + 1])
        if cursor.fetchone()[0]:
            raise WrongField(f"a run has at most {limits.RUN_KEYS} metrics")
    return long or []


def _arrays(points: Points) -> dict[str, str]:
    """Return the columns as arrays that the server reads: many times faster than by psycopg, value by value."""
    return {
        "names": f'{{"{_TEXTS.join(points.names)}"}}',  # keys have neither quotation marks nor backslashes
        "steps": f"{{{','.join(map(str, points.steps))}}}",
        "values": f"{{{','.join(map(repr, points.values))}}}",
        "times": f"{{{','.join(map(str, points.times))}}}",
    }


def _write_params(cursor, call: Call, job: Locked, params: list[tuple[str, str]]) -> None:
    names = [name for name, _value in params]
    values = [value for _name, value in params]
    numbers = [arguments.number(value) for value in values]
    cursor.execute(PARAMS, [job.pk, call.caller.user_id, job.attempt, names, values, numbers])
    written = {name for (name,) in cursor.fetchall()}
    for name, value in params:
        if name not in written:
            cursor.execute("SELECT text FROM run_param WHERE job_id = %s AND name = %s", [job.pk, name])
            old = cursor.fetchone()[0]
            raise WrongField(
                f"Changing param values is not allowed. Param with key='{name}' was already logged with "
                f"value='{old[:250]}' for run. Attempted logging new value '{value[:250]}'."
            )
    cursor.execute("SELECT count(*) FROM run_param WHERE job_id = %s", [job.pk])
    if cursor.fetchone()[0] > limits.RUN_PARAMS:
        raise WrongField(f"a run has at most {limits.RUN_PARAMS} parameters")
    cursor.execute("UPDATE job SET heard = now() WHERE id = %s", [job.pk])


def _write_tags(cursor, job: Locked, tags: Tags) -> None:
    cursor.execute(TAGS, [Jsonb(tags.own), Jsonb(tags.system), tags.title, tags.notes, job.pk])
    own, system = cursor.fetchone()
    if own > labels.MAX_TAGS and tags.own:
        raise WrongField(f"a run has at most {labels.MAX_TAGS} tags, besides those that begin with {limits.SYSTEM}")
    if system > limits.SYSTEM_TAGS and tags.system:
        raise WrongField(f"a run has at most {limits.SYSTEM_TAGS} tags that begin with {limits.SYSTEM}")


def _summarise(job: int, name: str) -> None:
    """Make blocks of a long series. A failure must not fail the report: readers make them, too."""
    try:
        blocks.fill(job, Block.Source.VALUES, name)
    except DatabaseError:
        log.exception("the blocks of %s of job %s could not be filled", name[:100], job)


class Pages:
    """Wakes the pages of runs that are written: at once, then once in WAKE_S at most, and after the last report."""

    def __init__(self):
        self._lock = threading.Lock()
        self._last: dict[int, float] = {}
        self._waiting: set[int] = set()

    def wake(self, pk: int, owner: str, name: str) -> None:
        now = time.monotonic()
        with self._lock:
            if pk in self._waiting:
                return
            left = self._last.get(pk, 0) + WAKE_S - now
            if left <= 0:
                if len(self._last) > 1000:
                    self._last = {key: at for key, at in self._last.items() if now - at < WAKE_S}
                self._last[pk] = now
            else:
                self._waiting.add(pk)
        if left <= 0:
            after_commit.stir("job", pk, owner, name)
        else:
            timer = threading.Timer(left, self._later, (pk, owner, name))
            timer.daemon = True
            timer.start()

    def _later(self, pk: int, owner: str, name: str) -> None:
        with self._lock:
            self._waiting.discard(pk)
            self._last[pk] = time.monotonic()
        after_commit.stir("job", pk, owner, name)


PAGES = Pages()
