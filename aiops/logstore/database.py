"""The log store in the platform's own database: the default.

Lines are written by `statements`, in partitions by time (`partitions`), and counted by minute (`counting`). Words are
searched from the newest partition to the oldest, until a page is full.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.models import Count, F, Max, Min, Q

from aiops.models import LogLine, Template, Workload
from kernel.database import execute_prepared, reachable
from kernel.errors import Refused

from . import conditions, counting, partitions, retention, searching, shares
from .base import MAX_MINUTES, MINUTE_MS, OWN_TEMPLATES, UNAVAILABLE, WORKLOADS_SHOWN, LogStore, Names, Share, clean
from .query import parse
from .statements import (
    APPEND,
    APPEND_ONLY,
    COLUMNS,
    LINE,
    NAMES,
    PLACES,
    UPDATE,
    VERDICT,
    Counts,
    change_of,
    columns_of,
    key_of,
    owner_of,
)

CHUNK = 2000
FOUND = 20_000  # matching lines of a search by words that a chart counts one by one


class DatabaseStore(LogStore):
    def __init__(self) -> None:
        self._thread = threading.local()  # its `counts`, within all_or_nothing

    @reachable(UNAVAILABLE)
    def append(self, lines: Sequence[dict]) -> list[str]:
        if not lines:
            return []
        verdicts, columns = columns_of(lines)
        counts = getattr(self._thread, "counts", None)
        if counts is None:
            return [id for (id,) in _prepared(APPEND[verdicts], columns)]
        rows = _prepared(APPEND_ONLY[verdicts], columns)
        counts.add(row[1:] for row in rows)
        return [row[0] for row in rows]

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        with reachable(UNAVAILABLE), transaction.atomic():
            self._thread.counts = counts = Counts()
            try:
                yield
            finally:
                del self._thread.counts
            with connection.cursor() as cursor:
                for statement, columns in counts.statements():
                    cursor.execute(statement, columns)

    @reachable(UNAVAILABLE)
    def update_many(self, changes: Sequence[tuple[str, dict]]) -> None:
        for start in range(0, len(changes), CHUNK):
            latest = {(id, *owner_of(change)): change for id, change in changes[start : start + CHUNK]}
            places = _places({id for id, *_owner in latest})
            rows = sorted(
                ((*places[id], *owner, change) for (id, *owner), change in latest.items() if id in places),
                key=lambda row: (row[:2], row[2] or "", row[3] or ""),
            )
            if rows:
                times, lines, clusters, namespaces, given = map(list, zip(*rows, strict=True))
                verdicts = {
                    column: [change_of(name, change.get(name)) for change in given] for name, column in VERDICT.items()
                }
                named = {"times": times, "lines": lines, "clusters": clusters, "namespaces": namespaces}
                _prepared(UPDATE, {**named, **verdicts, "first": times[0], "last": times[-1]})

    @reachable(UNAVAILABLE)
    def search(self, body: dict, size: int, after=None) -> tuple[list[dict], object]:
        tree = parse(body)
        if after is not None and type(after[1]) is not int:
            raise Refused("is not a valid page marker", field="after")
        page, more = searching.newest(tree, size, after)
        return [document(row) for row in page], more

    def scan(self, body: dict) -> Iterator[dict]:
        return self._scan(self.condition(body))

    def with_texts(self, masked: Sequence[str]) -> Iterator[dict]:
        return self._scan(Q(masked__in=masked))

    @staticmethod
    def _scan(condition: Q) -> Iterator[dict]:
        last = None
        while True:
            with reachable(UNAVAILABLE):
                rows = LogLine.objects.filter(condition).order_by("time", "pk")
                if last is not None:
                    rows = rows.filter(Q(time__gt=last[0]) | Q(pk__gt=last[1]), time__gte=last[0])
                page = list(rows[:CHUNK])
            yield from map(document, page)
            if len(page) < CHUNK:
                return
            last = page[-1].time, page[-1].pk

    @reachable(UNAVAILABLE)
    def count(self, body: dict) -> int:
        tree = parse(body)
        asked = conditions.known(tree)
        return counting.total(asked) if asked.whole else LogLine.objects.filter(conditions.condition(tree)).count()

    @reachable(UNAVAILABLE)
    def count_up_to(self, body: dict, most: int) -> tuple[int, bool]:
        tree = parse(body)
        asked = conditions.known(tree)
        if asked.whole:
            return counting.total(asked), True
        some, all_of_them = searching.matches(tree, most)
        return len(some), all_of_them

    @reachable(UNAVAILABLE)
    def aggregate_workloads(self) -> list[tuple[str, str, str, int]]:
        rows = Workload.objects.filter(lines__gt=0).order_by("cluster", "namespace", "deployment")
        return list(rows.values_list("cluster", "namespace", "deployment", "lines"))

    @reachable(UNAVAILABLE)
    def silent_workloads(self, names: Names, begin_ms: int, since_ms: int, until_ms: int) -> list[Names]:
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
        tree, bars = parse(body), None
        asked = conditions.known(tree)
        if asked.whole:
            bars = counting.bars_of_minutes(asked, begin_ms, width_ms, count)
        elif conditions.has_text(tree):
            end = begin_ms + width_ms * count
            matches, all_of_them = searching.matches(tree, FOUND, begin_ms, end)
            if not all_of_them:
                return counting.bars_of_samples(conditions.condition(tree), asked, begin_ms, width_ms, count)
            bars = counting.bars_of_matches(matches, begin_ms, width_ms, count)
        if bars is None:
            rows = LogLine.objects.filter(conditions.condition(tree))
            bars = counting.bars_of_lines(rows, begin_ms, width_ms, count)
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
    def template_minutes(self, names: Names, since_ms: int, until_ms: int) -> list[tuple[int | None, int, int]]:
        named = dict(zip(NAMES, names, strict=True))
        lines = LogLine.objects.filter(time__gte=since_ms, time__lt=until_ms, log_type="workload", **named)
        minutes = lines.order_by().annotate(minute=F("time") / MINUTE_MS).values_list("template_id", "minute")
        return list(minutes.annotate(n=Count("pk")).order_by("-n")[:MAX_MINUTES])

    @reachable(UNAVAILABLE)
    def put_templates(self, templates: Sequence[dict]) -> None:
        now = int(time.time() * 1000)
        created = [
            Template(
                template_id=str(template["_id"]),
                text=clean(template.get("template_matched")),
                sample=clean(template.get("log")),
                log_type=str(template.get("log_type") or ""),
                first=now,
                last=now,
            )
            for template in {str(template["_id"]): template for template in templates}.values()
        ]
        changed = ["text", "sample", "last"]
        Template.objects.bulk_create(
            created, update_conflicts=True, unique_fields=["template_id"], update_fields=changed
        )

    @reachable(UNAVAILABLE)
    def forget_templates(self, model: int) -> None:
        digits = len(str(OWN_TEMPLATES)) - 1
        bounds = {"pk__gte": f"{model}{'0' * digits}", "pk__lte": f"{model}{'9' * digits}"}  # for the index
        Template.objects.filter(**bounds, pk__regex=rf"^{model}[0-9]{{{digits}}}$").delete()

    @reachable(UNAVAILABLE)
    def forget(self, names: Names) -> int:
        return retention.forget(names)

    @reachable(UNAVAILABLE)
    def retain(self, days: int, megabytes: int) -> int:
        """Remove lines older than the days, and the oldest above the size limit; return how many lines."""
        return retention.remove(days, megabytes)

    @reachable(UNAVAILABLE)
    def retain_shares(self, megabytes: int) -> dict[str, Share]:
        return shares.remove(megabytes)

    @reachable(UNAVAILABLE)
    def is_upkeep_due(self) -> bool:
        return partitions.is_due()

    @reachable(UNAVAILABLE)
    def upkeep(self) -> None:
        """Close the newest partition when it is due, and index the text of closed ones. May take minutes."""
        partitions.keep()
        partitions.build_indexes()

    @staticmethod
    def condition(body: dict) -> Q:
        """Return the query as a condition on rows. Raises ValueError for what is unknown."""
        return conditions.condition(parse(body))


def document(row: LogLine) -> dict:
    """Return the row as a document with Opni's field names, without empty fields."""
    fields = {name: getattr(row, column) for name, column in COLUMNS.items()}
    return {name: value for name, value in fields.items() if value is not None and (value != "" or name in LINE)}


def _named(names: Names) -> dict:
    return {column: name for column, name in zip(NAMES, names, strict=True) if name}


def _places(ids: set[str]) -> dict[str, tuple[int, int]]:
    """Return the time and the number of the stored lines with these ids."""
    keys = {key_of(clean(id)): id for id in ids}
    return {keys[key]: (at, line) for key, at, line in _prepared(PLACES, [list(keys)])}


def _prepared(statement: str, params) -> list[tuple]:
    """Execute a statement that the server keeps parsed: with it a single line takes half the time."""
    connection.ensure_connection()
    return execute_prepared(statement, params)
