"""The log store in the platform's own database: the default.

Lines come by the thousand, so they are written by columns, one statement for each batch, which also updates the counts
by workload.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence

from django.db import connection
from django.db.models import Case, Count, F, IntegerField, Max, Min, Q, Value, When

from aiops.models import LogLine, Template, Workload
from kernel.database import reachable
from kernel.errors import Refused

from . import query_tree as q
from . import retention
from .base import UNAVAILABLE, WORKLOADS_SHOWN, LogStore, Names, clean
from .query import parse

# document's field -> column: first the line's own, then those of its verdict
LINE = {
    "_id": "line_id", "time": "time", "cluster_id": "cluster", "namespace_name": "namespace",
    "deployment": "deployment", "service": "service", "pod_name": "pod", "log_type": "log_type", "log": "log",
    "attributes": "attributes",
}  # fmt: skip
VERDICT = {
    "masked_log": "masked", "anomaly_level": "level", "template_matched": "template",
    "template_cluster_id": "template_id", "inference_model": "model", "opnilog_confidence": "confidence",
    "unexpected": "unexpected",
}  # fmt: skip
COLUMNS = LINE | VERDICT
NUMBERS = {"time": "bigint", "template_id": "bigint", "confidence": "float8", "unexpected": "jsonb",
           "attributes": "jsonb"}  # fmt: skip
NAMES = ("cluster", "namespace", "deployment")
CHUNK = 2000
NAME = 253  # characters of each name that are kept

APPEND = f"""
WITH fresh AS (
    INSERT INTO aiops_log ({", ".join(LINE.values())}, masked, level, template, model)
    SELECT *, '', '', '', '' FROM unnest({", ".join(f"%s::{NUMBERS.get(name, 'text')}[]" for name in LINE.values())})
    ON CONFLICT (line_id) DO NOTHING RETURNING line_id, cluster, namespace, deployment, time
), counted AS (
    INSERT INTO aiops_workload (cluster, namespace, deployment, lines, last)
    SELECT cluster, namespace, deployment, count(*), max(time) FROM fresh
    WHERE namespace <> '' AND deployment <> '' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (cluster, namespace, deployment) DO UPDATE
    SET lines = aiops_workload.lines + excluded.lines, last = greatest(aiops_workload.last, excluded.last)
)
SELECT line_id FROM fresh
"""
UPDATE = f"""
UPDATE aiops_log SET {", ".join(f"{name} = coalesce(given.{name}, aiops_log.{name})" for name in VERDICT.values())}
FROM unnest(%s::text[], %s::text[], %s::text[], {
    ", ".join(f"%s::{NUMBERS.get(name, 'text')}[]" for name in VERDICT.values())
}) AS given(line_id, cluster, namespace, {", ".join(VERDICT.values())})
WHERE aiops_log.line_id = given.line_id
AND (given.cluster IS NULL OR (aiops_log.cluster, aiops_log.namespace) = (given.cluster, given.namespace))
"""


class DatabaseStore(LogStore):
    @reachable(UNAVAILABLE)
    def append(self, lines: Sequence[dict]) -> list[str]:
        if not lines:
            return []
        rows = [
            tuple(_value(name, line) for name in LINE) for line in lines
        ]  # in order: keys tell lines of one ms apart
        with connection.cursor() as cursor:
            cursor.execute(APPEND, [list(column) for column in zip(*rows, strict=True)])
            return [id for (id,) in cursor.fetchall()]

    @reachable(UNAVAILABLE)
    def update_many(self, changes: Sequence[tuple[str, dict]]) -> None:
        for start in range(0, len(changes), CHUNK):
            latest = {(id, *_owner(change)): change for id, change in changes[start : start + CHUNK]}
            rows = [
                (*line, *(_change(name, latest[line].get(name)) for name in VERDICT))
                for line in sorted(latest, key=lambda line: (line[0], line[1] or "", line[2] or ""))
            ]
            with connection.cursor() as cursor:
                cursor.execute(UPDATE, [list(column) for column in zip(*rows, strict=True)])

    @reachable(UNAVAILABLE)
    def search(self, body: dict, size: int, after=None) -> tuple[list[dict], object]:
        rows = LogLine.objects.filter(self.condition(body)).order_by("-time", "-pk")
        if after is not None:
            at, pk = after
            if type(pk) is not int:
                raise Refused("is not a valid page marker", field="after")
            rows = rows.filter(Q(time__lt=at) | Q(time=at, pk__lt=pk))
        page = list(rows[: size + 1])
        more = (page[size - 1].time, page[size - 1].pk) if len(page) > size else None
        return [document(row) for row in page[:size]], more

    def scan(self, body: dict) -> Iterator[dict]:
        return self._scan(self.condition(body))

    def with_texts(self, masked: Sequence[str]) -> Iterator[dict]:
        return self._scan(Q(masked__in=masked))

    @staticmethod
    def _scan(condition: Q) -> Iterator[dict]:
        last = 0
        while True:
            with reachable(UNAVAILABLE):
                rows = list(LogLine.objects.filter(condition, pk__gt=last).order_by("pk")[:CHUNK])
            yield from map(document, rows)
            if len(rows) < CHUNK:
                return
            last = rows[-1].pk

    @reachable(UNAVAILABLE)
    def count(self, body: dict) -> int:
        return LogLine.objects.filter(self.condition(body)).count()

    @reachable(UNAVAILABLE)
    def aggregate_workloads(self) -> list[tuple[str, str, str, int]]:
        rows = Workload.objects.filter(lines__gt=0).order_by("cluster", "namespace", "deployment")
        return list(rows.values_list("cluster", "namespace", "deployment", "lines"))

    @reachable(UNAVAILABLE)
    def gone_quiet(self, names: Names, begin_ms: int, since_ms: int, until_ms: int) -> list[Names]:
        """Use the workloads' own rows; only for workloads with lines dated in the future their lines are searched."""
        rows = Workload.objects.filter(lines__gt=0, last__gte=begin_ms, **_named(names))
        quiet = set(rows.filter(last__lt=since_ms).values_list(*NAMES))
        ahead = set(rows.filter(last__gte=until_ms).values_list(*NAMES))
        if ahead:
            columns = {f"{name}__in": set(values) for name, values in zip(NAMES, zip(*ahead, strict=True), strict=True)}
            lines = LogLine.objects.filter(time__gte=begin_ms, time__lt=until_ms, **columns).order_by()
            newest = lines.values_list(*NAMES).annotate(newest=Max("time"))
            quiet |= {row[:3] for row in newest if row[:3] in ahead and row[3] < since_ms}
        return sorted(quiet)

    @reachable(UNAVAILABLE)
    def histogram(self, body: dict, begin_ms: int, width_ms: int, count: int) -> list[dict[str, int]]:
        within = LogLine.objects.filter(self.condition(body), time__gte=begin_ms, time__lt=begin_ms + width_ms * count)
        spans = within.annotate(span=(F("time") - begin_ms) / width_ms)  # of integers: PostgreSQL rounds down
        bars: list[dict[str, int]] = [{} for _ in range(count)]
        for span, level, lines in spans.values_list("span", "level").annotate(n=Count("pk")):
            bars[span][level] = lines
        return bars

    @reachable(UNAVAILABLE)
    def by_workload(self, body: dict, size: int) -> list[tuple[str, str, str, int]]:
        rows = LogLine.objects.filter(self.condition(body)).values_list(*NAMES).annotate(n=Count("pk"))
        return list(rows.order_by("-n", *NAMES)[:size])

    @reachable(UNAVAILABLE)
    def templates(self, body: dict, size: int) -> list[dict]:
        matching = LogLine.objects.filter(self.condition(body), template_id__isnull=False)
        anomalies = Count("pk", filter=Q(level="Anomaly"))
        some = matching.values("template_id").annotate(
            lines=Count("pk"), anomalies=anomalies, first=Min("time"), last=Max("time")
        )
        by_number = {
            row.pop("template_id"): {**row, "workloads": []} for row in some.order_by("-lines", "template_id")[:size]
        }
        theirs = matching.filter(template_id__in=by_number)
        workloads = theirs.values_list("template_id", *NAMES).annotate(n=Count("pk")).order_by("-n", *NAMES)
        for number, *names, _lines in workloads:
            if len(by_number[number]["workloads"]) < WORKLOADS_SHOWN:
                by_number[number]["workloads"].append(tuple(names))
        newest = theirs.order_by("template_id", "-time", "-pk").distinct("template_id")
        shown = {row.template_id: document(row) for row in newest}
        return [{"template_cluster_id": number, **row, "newest": shown[number]} for number, row in by_number.items()]

    @reachable(UNAVAILABLE)
    def put_templates(self, templates: Sequence[dict]) -> None:
        now = int(time.time() * 1000)
        made = [
            Template(
                template_id=str(one["_id"]),
                text=clean(one.get("template_matched")),
                sample=clean(one.get("log")),
                log_type=str(one.get("log_type") or ""),
                first=now,
                last=now,
            )
            for one in {str(one["_id"]): one for one in templates}.values()
        ]
        changed = ["text", "sample", "last"]
        Template.objects.bulk_create(made, update_conflicts=True, unique_fields=["template_id"], update_fields=changed)

    @reachable(UNAVAILABLE)
    def forget(self, names: Names) -> int:
        return retention.forget(names)

    @reachable(UNAVAILABLE)
    def retain(self, days: int, megabytes: int) -> int:
        """Remove lines older than the days, and the oldest above the size limit; return how many lines."""
        return retention.remove(days, megabytes)

    @staticmethod
    def condition(body: dict) -> Q:
        """Return the query as a condition on rows. Raises ValueError for what is unknown."""
        return _condition(parse(body))


def document(row: LogLine) -> dict:
    """Return the row as a document with Opni's field names, without empty fields."""
    fields = {name: getattr(row, column) for name, column in COLUMNS.items()}
    return {name: value for name, value in fields.items() if value is not None and (value != "" or name in LINE)}


def _named(names: Names) -> dict:
    return {column: name for column, name in zip(NAMES, names, strict=True) if name}


def _value(name: str, line: dict):
    value = line.get(name)
    if name == "time":
        return int(value)
    if name == "attributes":
        return json.dumps(value) if value else None
    if name == "log_type":
        return clean(value)[:40] or "workload"
    return clean(value) if name == "log" else clean(value)[: 100 if name == "_id" else NAME]


def _owner(change: dict) -> tuple[str | None, str | None]:
    names = ("cluster_id", "namespace_name")
    return tuple(_value(name, change) for name in names) if "cluster_id" in change else (None, None)


def _change(name: str, value):
    if value is None:
        return None
    if name == "unexpected":
        return json.dumps(value)
    return value if COLUMNS[name] in NUMBERS else clean(value)


def _condition(node) -> Q:
    match node:
        case q.All():
            return Q()
        case q.Is(field, values) if field.startswith(q.ATTRIBUTE):
            key = field.removeprefix(q.ATTRIBUTE)
            return _any_of(Q(attributes__contains={key: str(value)}) for value in values)
        case q.Exists(field) if field.startswith(q.ATTRIBUTE):
            return Q(attributes__has_key=field.removeprefix(q.ATTRIBUTE))
        case q.Is(field, values):
            return Q(**{f"{COLUMNS[field]}__in": values})
        case q.Between(field, bounds):
            return Q(**{f"{COLUMNS[field]}__{bound}": value for bound, value in bounds})
        case q.Words(fields, words):
            return _any_of(_words(COLUMNS[field], words) for field in fields)
        case q.Exists(field):
            column = COLUMNS[field]
            return Q(**{f"{column}__isnull": False}) if column in NUMBERS else ~Q(**{column: ""})
        case q.And(parts):
            whole = Q()
            for part in parts:
                whole &= _condition(part)
            return whole
        case q.Not(part):
            return _not(_condition(part))
        case q.Or(parts, least):
            return _at_least([_condition(part) for part in parts], least)
    raise ValueError(f"{node}: unknown")


NOTHING = Q(pk__in=[])


def _not(condition: Q) -> Q:
    return ~condition if condition else NOTHING


def _any_of(conditions) -> Q:
    whole = NOTHING
    for condition in conditions:
        if not condition:
            return Q()
        whole |= condition
    return whole


def _at_least(conditions: list[Q], least: int) -> Q:
    if least <= 0:
        return Q()
    if least == 1:
        return _any_of(conditions)
    hits = [Case(When(one or Q(pk__gt=0), then=1), default=0, output_field=IntegerField()) for one in conditions]
    whole = Value(0)
    for hit in hits:
        whole = whole + hit
    return Q(pk__in=LogLine.objects.annotate(hits=whole).filter(hits__gte=least).values("pk")) if hits else NOTHING


def _words(column: str, words: tuple[str, ...]) -> Q:
    """Match the words as a whole, one after the other. Without any word (punctuation only) nothing matches, as in
    OpenSearch.
    """
    if not words:
        return NOTHING
    return Q(**{f"{column}__iregex": r"\m" + r"\W+".join(map(re.escape, words)) + r"\M"})
