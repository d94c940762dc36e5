"""The statements that write lines and verdicts to the database, and keep the counts that go with them.

Lines come by the thousand, so they are written by columns, one statement for each batch, which also updates the counts
by workload and by minute. What many lines of a batch share, such as names and verdicts, is sent once. Rows of counts
are locked in the order of their keys, and until the transaction ends: one of several batches writes its counts once, at
its end (Counts).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable

from .base import MINUTE_MS, clean, placed

# document's field -> column: first the line's own, then those of its verdict
LINE = {
    "_id": "line_id", "time": "time", "cluster_id": "cluster", "namespace_name": "namespace",
    "deployment": "deployment", "service": "service", "pod_name": "pod", "log_type": "log_type", "log": "log",
    "attributes": "attributes",
}  # fmt: skip
OWN = {name: LINE[name] for name in ("_id", "time", "log")}  # seldom the same in two lines
SHARED = {name: column for name, column in LINE.items() if name not in OWN}
VERDICT = {
    "masked_log": "masked", "anomaly_level": "level", "template_matched": "template",
    "template_cluster_id": "template_id", "inference_model": "model", "opnilog_confidence": "confidence",
    "unexpected": "unexpected",
}  # fmt: skip
COLUMNS = LINE | VERDICT
NUMBERS = {"time": "bigint", "template_id": "bigint", "confidence": "float8", "unexpected": "jsonb",
           "attributes": "jsonb"}  # fmt: skip
IN_JSON = ("attributes", "unexpected")
TEXTS_OF_VERDICTS = ("masked", "level", "template", "model")
NAMES = ("cluster", "namespace", "deployment")
NAME = 253  # characters of each name that are kept
KEY = "left(encode(sha256(convert_to(line_id, 'UTF8')), 'hex'), 32)::uuid"  # as key_of


def _counts(source: str) -> str:
    """Return the columns of a minute's counts, of the lines in `source`."""
    return (
        f"count(*) FILTER (WHERE {source} NOT IN ('Normal', 'Anomaly')),"
        f" count(*) FILTER (WHERE {source} = 'Normal'), count(*) FILTER (WHERE {source} = 'Anomaly')"
    )


def _given(columns) -> str:
    return ", ".join(f"%s::{NUMBERS.get(name, 'text')}[]" for name in columns)


MINUTES = """
INSERT INTO aiops_log_minute AS minutes (minute, cluster, namespace, deployment, unjudged, normal, anomalies)
{selected} ORDER BY 1, 2, 3, 4
ON CONFLICT (minute, cluster, namespace, deployment) DO UPDATE
SET unjudged = greatest(0, minutes.unjudged + excluded.unjudged),
    normal = greatest(0, minutes.normal + excluded.normal),
    anomalies = greatest(0, minutes.anomalies + excluded.anomalies)
"""


WORKLOADS = """
INSERT INTO aiops_workload (cluster, namespace, deployment, lines, last) {selected} ORDER BY 1, 2, 3
ON CONFLICT (cluster, namespace, deployment) DO UPDATE
SET lines = aiops_workload.lines + excluded.lines, last = greatest(aiops_workload.last, excluded.last)
"""
# What a transaction of several batches counted, at its end.
COUNTED_WORKLOADS = WORKLOADS.format(
    selected="SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::int8[], %s::int8[])"
)
COUNTED_MINUTES = MINUTES.format(
    selected="SELECT * FROM unnest(%s::int8[], %s::text[], %s::text[], %s::text[], %s::int8[], %s::int8[], %s::int8[])"
)


def _append(verdicts: bool, counts: bool) -> str:
    shared = [*SHARED.values(), *(VERDICT.values() if verdicts else ())]
    own, names = ", ".join(OWN.values()), ", ".join(shared)
    empty = "" if verdicts else f", {', '.join(TEXTS_OF_VERDICTS)}"
    minutes = f"""
    SELECT time / 60000, cluster, namespace, deployment, {_counts("level")} FROM fresh GROUP BY 1, 2, 3, 4
    """
    workloads = """
    SELECT cluster, namespace, deployment, count(*), max(time) FROM fresh
    WHERE namespace <> '' AND deployment <> '' GROUP BY 1, 2, 3
    """
    counted = f"""
, counted AS ({WORKLOADS.format(selected=workloads)}), minutes AS ({MINUTES.format(selected=minutes)})
    """
    return f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%s::uuid[], {_given(OWN.values())}, %s::bigint[]) AS given(key, {own}, number)
), shared AS MATERIALIZED (
    SELECT * FROM unnest({_given(shared)}) WITH ORDINALITY AS shared({names}, number)
), taken AS (
    INSERT INTO aiops_log_key (key, time, line) SELECT key, time, nextval('aiops_log_number_seq') FROM given
    ON CONFLICT (key) DO NOTHING RETURNING key, line
), fresh AS (
    INSERT INTO aiops_log (id, {own}, {names}{empty})
    SELECT taken.line, {", ".join(f"given.{name}" for name in OWN.values())},
        {", ".join(f"shared.{name}" for name in shared)}{"" if verdicts else ", ''" * 4}
    FROM taken JOIN given USING (key) JOIN shared USING (number)
    RETURNING line_id, cluster, namespace, deployment, time, level
){counted if counts else ""}
SELECT line_id{"" if counts else ", cluster, namespace, deployment, time, level"} FROM fresh
"""


APPEND = {verdicts: _append(verdicts, counts=True) for verdicts in (False, True)}
APPEND_ONLY = {verdicts: _append(verdicts, counts=False) for verdicts in (False, True)}
PLACES = "SELECT replace(key::text, '-', ''), time, line FROM aiops_log_key WHERE key = ANY(%s::uuid[])"
CHANGED = """
SELECT time / 60000, cluster, namespace, deployment,
    sum((after NOT IN ('Normal', 'Anomaly'))::int - (before NOT IN ('Normal', 'Anomaly'))::int),
    sum((after = 'Normal')::int - (before = 'Normal')::int), sum((after = 'Anomaly')::int - (before = 'Anomaly')::int)
FROM changed WHERE after <> before GROUP BY 1, 2, 3, 4
"""
# With the bounds of the times as constants, so that only the partitions that have the lines are planned.
UPDATE = f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(times)s::bigint[], %(lines)s::bigint[], %(clusters)s::text[], %(namespaces)s::text[], {
    ", ".join(f"%({name})s::{NUMBERS.get(name, 'text')}[]" for name in VERDICT.values())
}) AS given(at, line, its_cluster, its_namespace, {", ".join(f"its_{name}" for name in VERDICT.values())})
), held AS (
    SELECT aiops_log.time, aiops_log.id, aiops_log.level AS before, given.*
    FROM given JOIN aiops_log ON aiops_log.time = given.at AND aiops_log.id = given.line
    WHERE aiops_log.time BETWEEN %(first)s AND %(last)s AND (its_cluster IS NULL
        OR (aiops_log.cluster, aiops_log.namespace) = (its_cluster, its_namespace))
    FOR NO KEY UPDATE OF aiops_log
), changed AS (
    UPDATE aiops_log SET {", ".join(f"{name} = coalesce(its_{name}, aiops_log.{name})" for name in VERDICT.values())}
    FROM held WHERE aiops_log.time = held.time AND aiops_log.id = held.id
        AND aiops_log.time BETWEEN %(first)s AND %(last)s
    RETURNING aiops_log.time, cluster, namespace, deployment, held.before, aiops_log.level AS after
), minutes AS ({MINUTES.format(selected=CHANGED)})
SELECT count(*) FROM changed
"""


class Counts:
    """What APPEND_ONLY has stored: lines by workload, and by minute and verdict."""

    def __init__(self) -> None:
        self.lines: Counter[tuple[str, str, str]] = Counter()
        self.last: dict[tuple[str, str, str], int] = {}
        self.minutes: dict[tuple[int, str, str, str], list[int]] = {}

    def add(self, rows: Iterable[tuple[str, str, str, int, str]]) -> None:
        """Count lines: (cluster, namespace, deployment, time in ms, verdict)."""
        for cluster, namespace, deployment, at, level in rows:
            names = cluster, namespace, deployment
            if namespace and deployment:
                self.lines[names] += 1
                self.last[names] = max(at, self.last.get(names, at))
            verdicts = self.minutes.setdefault((at // MINUTE_MS, *names), [0, 0, 0])
            verdicts[{"Normal": 1, "Anomaly": 2}.get(level, 0)] += 1

    def statements(self) -> list[tuple[str, list[list]]]:
        """Return the statements that add them to the stored counts, with their parameters, to be executed in order."""
        workloads = [(*names, lines, self.last[names]) for names, lines in self.lines.items()]
        minutes = [(*names, *verdicts) for names, verdicts in self.minutes.items()]
        return [
            (statement, [list(column) for column in zip(*rows, strict=True)])
            for statement, rows in ((COUNTED_WORKLOADS, workloads), (COUNTED_MINUTES, minutes))
            if rows
        ]


def key_of(id: str) -> str:
    """Return the key of a line with this id, in hex."""
    return hashlib.sha256(id.encode()).hexdigest()[:32]


def columns_of(lines) -> tuple[bool, list]:
    """Return whether the lines have verdicts, and the parameters of APPEND; of several with one id the first counts."""
    verdicts = any("anomaly_level" in line or "masked_log" in line for line in lines)
    now = int(time.time() * 1000)
    rows: dict[str, tuple[str, int, str, int]] = {}
    numbers: dict[tuple, int] = {}
    shared: list[tuple] = []
    names = [name for name in (*SHARED, *(VERDICT if verdicts else ())) if name not in IN_JSON]
    for given in lines:
        line = placed(given, now)
        id = _value("_id", line)
        key = key_of(id)
        if key in rows:
            continue
        attributes, unexpected = line.get("attributes"), line.get("unexpected") if verdicts else None
        same = (
            *map(line.get, names),
            json.dumps(attributes) if attributes else None,
            json.dumps(unexpected) if unexpected else None,
        )
        number = numbers.get(same)
        if number is None:
            number = numbers[same] = len(shared) + 1
            row = tuple(_value(name, line) for name in SHARED)
            shared.append(row + tuple(_judged(name, line.get(name)) for name in VERDICT) if verdicts else row)
        rows[key] = id, int(line["time"]), _value("log", line), number
    ids, times, logs, of = zip(*rows.values(), strict=True)
    own = [_plain(rows), _texts(ids), _plain(times), _texts(logs), _plain(of)]
    return verdicts, [*own, *(list(column) for column in zip(*shared, strict=True))]


def _plain(values: Iterable[str | int]) -> str:
    """Return an array of numbers, or of keys in hex, as PostgreSQL writes it."""
    return f"{{{','.join(map(str, values))}}}"


def _texts(values: Iterable[str]) -> str:
    """Return an array of texts as PostgreSQL writes it: for thousands of texts psycopg takes ten times as long."""
    joined = "\0".join(values).replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + joined.replace("\0", '","') + '"}'


def _value(name: str, line: dict):
    value = line.get(name)
    if name == "time":
        return int(value)
    if name == "attributes":
        return json.dumps(value) if value else None
    if name == "log_type":
        return clean(value)[:40] or "workload"
    return clean(value) if name == "log" else clean(value)[: 100 if name == "_id" else NAME]


def _judged(name: str, value):
    changed = change_of(name, value)
    return "" if changed is None and VERDICT[name] in TEXTS_OF_VERDICTS else changed


def change_of(name: str, value):
    """Return the value of a verdict's field for its column; None leaves the column as it is."""
    if value is None:
        return None
    if name == "unexpected":
        return json.dumps(value)
    return value if COLUMNS[name] in NUMBERS else clean(value)


def owner_of(change: dict) -> tuple[str | None, str | None]:
    """Return the cluster and namespace that a change names, None for both if it names none."""
    names = ("cluster_id", "namespace_name")
    return tuple(_value(name, change) for name in names) if "cluster_id" in change else (None, None)
