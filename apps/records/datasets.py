"""Datasets of records: those of a time range in parts of NDJSON or CSV, written in the background (datasets.copies)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from django.db.models import Sum

from datasets import copies, lifecycle
from datasets.models import Dataset
from kernel import broker, disk, spreadsheets
from kernel.errors import Refused
from kernel.messages import Message

from ..models import Application, Record
from . import rows

KIND = "records"
FORMATS = ("ndjson", "csv")
PART_BYTES = 64 << 20
PIECE_BYTES = 1 << 20
ROW_BYTES = 600  # of a record in a file, beside its bodies
COLUMNS = ("time", "id", "model", "canary", "key", "path", "status", "ms", "complete", "input", "output", "feedback")


def create(
    *, app: Application, name: str, since: str = "", until: str = "", form: str = "ndjson", title: str = "", by: str
) -> Dataset:  # fmt: skip
    """Create a dataset of the records of an application from `since` to `until`, which are written next; of all that
    are stored now where they are empty.

    Raises Refused, which names the field; DiskFull; Fault, with nothing stored, when the task queue is not available.
    """
    first = rows.moment(since, "since") if since.strip() else None
    last = rows.moment(until, "until") if until.strip() else None
    found = _within(app, first, last)
    newest = found.order_by("-pk").values_list("pk", flat=True).first()
    if newest is None:
        raise Refused("there are no records in this time", field="since")
    # An upper bound, which is what is reserved until they are written.
    sizes = found.aggregate(size=Sum("size"))["size"] or 0
    size = 2 * sizes + ROW_BYTES * found.count()
    disk.require(size)
    broker.require()
    span = f"{_text(first)}..{_text(last)}"
    return lifecycle.create_dataset(
        user=app.user, name=name, size=size, src=f"{KIND}/{app.name}/{span}/{newest}.{form}", title=title, by=by,
    )  # fmt: skip


def _text(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if at is not None else ""


def _within(app: Application, first: datetime | None, last: datetime | None):
    found = Record.objects.filter(app=app)
    found = found.filter(at__gte=first) if first is not None else found
    return found.filter(at__lt=last) if last is not None else found


def write(row: Dataset, folder: Path, written: Callable[[int], object]) -> Message | None:
    """Write the records that a dataset's source names. What was recorded after its creation is not in it. Returns what
    is to be said where some have been deleted meanwhile.

    Raises Refused, DiskFull, OSError.
    """
    _kind, name, span, last = row.src.split("/")
    number, _dot, form = last.partition(".")
    first, _dots, until = span.partition("..")
    app = Application.objects.filter(user=row.user, name=name).first()
    if app is None:
        raise Refused("the application %(name)s no longer exists", field="src", name=name)
    found = _within(app, rows.moment(first, "src") if first else None, rows.moment(until, "src") if until else None)
    found = found.filter(pk__lte=int(number))
    missing, parts = found.count(), Parts(folder, form, written)
    try:
        for record in rows.oldest_first(found):
            parts.add(rows.line(record) if form == "ndjson" else csv_line(record))
            missing -= 1
    finally:
        parts.close()
    if not parts.count:
        raise Refused("the records were deleted before they were written", field="src")
    if missing <= 0:
        return None
    return Message("records that were deleted while it was written are left out: %(count)s", count=missing)


def csv_line(record: Record) -> bytes:
    """Return a record as a line of CSV, its bodies as they are stored."""
    whole = rows.shown(record) | {"input": record.input, "output": record.output}
    whole |= {"feedback": json.dumps(whole["feedback"], ensure_ascii=False) if whole["feedback"] else ""}
    return spreadsheets.part([[whole[column] for column in COLUMNS]]).encode()


class Parts:
    """Files of about PART_BYTES each, `records-00000.ndjson` first; each of CSV begins with its columns' names."""

    def __init__(self, folder: Path, form: str, written: Callable[[int], object]):
        self.folder, self.form, self.written = folder, form, written
        self.head = b"" if form == "ndjson" else (spreadsheets.MARK + spreadsheets.part([COLUMNS])).encode()
        self.count = self.total = self.size = 0
        self.pending = bytearray()
        self.file: BinaryIO | None = None

    def add(self, line: bytes) -> None:
        """Add a line. Raises DiskFull, OSError."""
        if self.file is None or self.size > PART_BYTES:
            self.close()
            self.file = (self.folder / f"records-{self.count:05d}.{self.form}").open("xb")
            self.count, self.size = self.count + 1, 0
            self.pending += self.head
        self.pending += line
        self.size += len(line)
        if len(self.pending) >= PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self.file is not None and self.pending:
            disk.require(len(self.pending))
            self.file.write(self.pending)
            self.total += len(self.pending)
            self.pending.clear()
            self.written(self.total)

    def close(self) -> None:
        """Write what is left of a file to the disk."""
        if self.file is None:
            return
        try:
            self._flush()
            self.file.flush()
            os.fsync(self.file.fileno())
        finally:
            self.file.close()
            self.file = None


def register() -> None:
    """Let datasets of records be written."""
    copies.register_writer(KIND, write)
