"""The records of an application: filtered, found, and as one object each for REST, pages and exports."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_date, parse_datetime

from kernel import sanitize
from kernel.errors import Refused
from kernel.locking import Missing

from ..models import Application, Feedback, Record

PAGE = 100  # rows that an export reads at once, each with up to 128 KiB and 100 of feedback
MAX_DIGITS = 18  # of the number of a record
CLASSES = {"ok": Q(status__lt=400), "refused": Q(status__gte=400, status__lt=500), "failed": Q(status__gte=500)}
FILTERS = ("since", "until", "model", "canary", "status", "id", "key")


def of(app: Application, given: Mapping[str, str]) -> QuerySet[Record]:
    """Return the records that match all of FILTERS that are given, newest first. `since` counts, `until` does not.

    Raises Refused, which names the filter.
    """
    rows = Record.objects.filter(app=app).order_by("-at", "-pk")
    for name, condition in (("since", "at__gte"), ("until", "at__lt")):
        if text := given.get(name, "").strip():
            rows = rows.filter(**{condition: moment(text, name)})
    for name, column in (("model", "model_name"), ("canary", "arm"), ("id", "request_id"), ("key", "caller")):
        if text := given.get(name, "").strip():
            rows = rows.filter(**{column: sanitize.text(text)})
    if text := given.get("status", "").strip():
        rows = rows.filter(_status(text))
    return rows


def _status(text: str) -> Q:
    if text in CLASSES:
        return CLASSES[text]
    if text.isascii() and text.isdigit() and len(text) == 3:
        return Q(status=int(text))
    raise Refused("must be ok, refused, failed or a status such as 200", field="status")


def moment(text: str, field: str) -> datetime:
    """Return a time, in UTC where it names no zone; a day is its begin. Raises Refused."""
    try:
        at = parse_datetime(text)
        day = parse_date(text) if at is None else None
    except ValueError:
        at = day = None
    if day is not None:
        at = datetime(day.year, day.month, day.day)
    if at is None:
        raise Refused("must be a time such as 2026-05-17T10:00:00Z", field=field)
    try:
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC) + timedelta(0)
    except OverflowError:
        raise Refused("must be a time such as 2026-05-17T10:00:00Z", field=field) from None


def find(app: Application, number: str) -> Record:
    """Return one record. Raises Missing."""
    known = number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS
    row = Record.objects.filter(app=app, pk=int(number)).first() if known else None
    if row is None:
        raise Missing("record")
    return row


def with_feedback(rows: Iterable[Record]) -> list[Record]:
    """Return the records, each with what was said of it as `said`, the first first."""
    shown = list(rows)
    said: dict[str, list[Feedback]] = defaultdict(list)
    if shown:
        ids = {row.request_id for row in shown}
        for one in Feedback.objects.filter(app=shown[0].app_id, request_id__in=ids).order_by("pk"):
            said[one.request_id].append(one)
    for row in shown:
        row.said = said[row.request_id]
    return shown


def value_of(row: Record, side: str):
    """Return the input or the output: the JSON value where it is whole JSON, else its text; None where none is kept."""
    text, kept = getattr(row, side), getattr(row, f"{side}_kept")
    if kept not in (Record.Kept.ALL, Record.Kept.CUT):
        return None
    if kept == Record.Kept.ALL and text[:1] in ("{", "["):
        try:
            return sanitize.read_storable(text)
        except ValueError:  # NaN, which the applications take and JSON has not; half a surrogate pair
            return text
    return text


def shown(row: Record) -> dict:
    """Return a record that `with_feedback` has returned as one object."""
    sides: dict = {}
    for side in ("input", "output"):
        sides |= {
            side: value_of(row, side),
            f"{side}_kept": getattr(row, f"{side}_kept"),
            f"{side}_type": getattr(row, f"{side}_type"),
            f"{side}_bytes": getattr(row, f"{side}_size"),
        }
    return {
        "number": row.pk,
        "time": row.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "id": row.request_id,
        "model": row.model_name,
        "canary": row.arm,
        "key": row.caller,
        "path": row.path,
        "status": row.status,
        "ms": row.ms,
        "complete": row.whole,
        **sides,
        "feedback": [
            {"value": one.value, "comment": one.comment, "key": one.caller,
             "time": one.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}
            for one in row.said
        ],
    }  # fmt: skip


def oldest_first(rows: QuerySet[Record]) -> Iterator[Record]:
    """Yield records in the order of their time, PAGE at a time, without holding a transaction or all in memory."""
    rows = rows.order_by("at", "pk")
    last: Record | None = None
    while True:
        page = rows if last is None else rows.filter(Q(at__gt=last.at) | Q(at=last.at, pk__gt=last.pk))
        found = with_feedback(page[:PAGE])
        yield from found
        if len(found) < PAGE:
            return
        last = found[-1]


def line(row: Record) -> bytes:
    """Return the record as a line of NDJSON."""
    return json.dumps(shown(row), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
