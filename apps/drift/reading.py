"""Samples of rows: of the files of a dataset, of an application's records in a time range.

Bounded in rows, bytes and time, whatever is there: of more rows than a sample takes, each has the same chance.
"""

from __future__ import annotations

import csv
import io
import itertools
import random
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from django.db.models import QuerySet

from kernel import sanitize, storage
from kernel.errors import Refused
from kernel.messages import Message

from ..models import Application, Record
from ..records import rows as records
from . import features
from .features import Row

SAMPLE = 2000  # rows of a reference, and of a window
COMPARED = 100  # features of the inputs, and of the outputs
MOST_ROWS, MOST_BYTES, MOST_S = 2_000_000, 1 << 30, 60.0  # that are read of a dataset
MOST_KEYS = 500_000  # records among which those of a sample are drawn
RECORDS_S = 30.0  # for which records of a window are read
PAGE = 50  # records that are read at once, each with up to 128 KiB
MAX_LINE = 1 << 20
TABLES, LINES = {".csv": "", ".tsv": "\t"}, (".ndjson", ".jsonl")
RECORD = {"id", "input", "output", "status", "path"}  # what a line of exported records has


class Sample(NamedTuple):
    """Rows of the inputs and of the outputs, of how many records, and how many of these could not be read."""

    inputs: list[Row]
    outputs: list[Row]
    count: int
    unread: int = 0


class Reservoir:
    """A sample of a stream in which each row has the same chance, in the order of the stream."""

    def __init__(self, size: int, seed: int = 0):
        self.size, self.seen, self.kept = size, 0, []  # type: int, int, list[tuple[int, Row]]
        self.random = random.Random(seed)

    def add(self, row: Row) -> None:
        if len(self.kept) < self.size:
            self.kept.append((self.seen, row))
        elif (at := self.random.randrange(self.seen + 1)) < self.size:
            self.kept[at] = (self.seen, row)
        self.seen += 1

    @property
    def rows(self) -> list[Row]:
        return [row for _at, row in sorted(self.kept, key=lambda each: each[0])]


class Chosen:
    """Takes from rows the features that are compared: those of these names, or, for a reference, the first that come.

    The keys of JSON objects have no order: of two requests with many features the first ones may be others.
    """

    def __init__(self, names: Iterable[str] | None = None):
        self.is_new, self.names = names is None, set(names or ())

    def __call__(self, row: Row) -> Row:
        if self.is_new and len(self.names) < COMPARED:
            self.names.update(itertools.islice((name for name in row if name not in self.names),
                                               COMPARED - len(self.names)))  # fmt: skip
        found = {name: value for name, value in row.items() if name in self.names}
        if found or self.is_new:
            return found
        return dict(itertools.islice(row.items(), COMPARED))  # these may be matched by their order


# --- datasets -----------------------------------------------------------------------------------------------------
def of_dataset(folder: Path, target: str, fixed: frozenset[str]) -> Sample:
    """Return a sample of the rows of a dataset's files: CSV, TSV and NDJSON. `target` is the column that has what the
    model is to answer; the others are its inputs. Exported records have both by themselves.

    Raises Refused where there are no such rows.
    """
    inputs, outputs, chosen, answers = Reservoir(SAMPLE), Reservoir(SAMPLE), Chosen(), Chosen()
    end, count, seen = time.monotonic() + MOST_S, 0, set()  # type: float, int, set[str]
    for given, answered in _pairs(folder, fixed, seen):
        count += 1
        for row in given:
            if target and target in row:
                outputs.add({"": row.pop(target)})
            inputs.add(chosen(row))
        for row in answered:
            outputs.add(answers(row))
        if count >= MOST_ROWS or time.monotonic() > end:
            break
    if not inputs.seen:
        raise _nothing(seen)
    if target and not outputs.seen:
        raise Refused("the dataset has no column %(name)s", field="target", name=target)
    return Sample(inputs.rows, outputs.rows, count)


def _nothing(seen: set[str]) -> Refused:
    if ".parquet" in seen:
        return Refused("Parquet cannot be read here; write the dataset as CSV or NDJSON", field="dataset")
    return Refused("the dataset has no rows in CSV, TSV or NDJSON files", field="dataset")


def _pairs(folder: Path, fixed: frozenset[str], seen: set[str]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield the rows of inputs and outputs, line by line. `seen` gets the endings of the files."""
    left = MOST_BYTES
    for relative, _status in sorted(storage.files(folder), key=lambda each: each[0]):
        ending = Path(relative).suffix.lower()
        seen.add(ending)
        if ending not in TABLES and ending not in LINES:
            continue
        file = storage.open_file(folder, relative)
        if file is None:
            continue
        with file:
            lines = _bounded(file, left)
            try:
                if ending in TABLES:
                    yield from (([row], []) for row in _of_table(lines, TABLES[ending]))
                else:
                    yield from _of_lines(lines, fixed)
            except (csv.Error, UnicodeDecodeError):
                raise Refused("the file %(file)s is not UTF-8, or has a cell or a line that is too long",
                              field="dataset", file=storage.shown(relative))  # fmt: skip
            left -= file.tell()
        if left <= 0:
            return


def _bounded(file: io.BufferedIOBase, most: int) -> Iterator[bytes]:
    """Yield the lines of a file up to so many bytes. Raises csv.Error for one that is too long."""
    while most > 0 and (line := file.readline(MAX_LINE + 1)):
        if len(line) > MAX_LINE:
            raise csv.Error
        most -= len(line)
        yield line


def _of_table(lines: Iterator[bytes], delimiter: str) -> Iterator[Row]:
    """Yield the rows of a table, whose first line says what is between its cells where that is not known. Raises
    csv.Error, UnicodeDecodeError.
    """
    first = next((text for line in lines if (text := line.decode("utf-8-sig")).strip()), "")
    text = itertools.chain([first], (line.decode() for line in lines))
    yield from features.rows_of_table(csv.reader(text, delimiter=delimiter or features.delimiter_of(first)))


def _of_lines(lines: Iterable[bytes], fixed: frozenset[str]) -> Iterator[tuple[list[Row], list[Row]]]:
    for line in lines:
        try:
            value = sanitize.read_json(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(value, dict) and value.keys() >= RECORD:
            if isinstance(value["status"], int) and value["status"] < 400:
                yield _rows(value["input"], fixed), _rows(value["output"], frozenset())
        elif value is not None:
            yield features.rows_of(value, fixed), []


def _rows(value, fixed: frozenset[str]) -> list[Row]:
    """Return the rows of a recorded body, which is a text where it was CSV."""
    if isinstance(value, dict | list):
        return features.rows_of(value, fixed)
    return []


# --- records ------------------------------------------------------------------------------------------------------
def within(app_id: int, begin: datetime, end: datetime) -> QuerySet[Record]:
    """Return the records of answered requests in a time range."""
    return Record.objects.filter(app=app_id, at__gte=begin, at__lt=end, status__lt=400)


def of_records(
    app: Application, begin: datetime, end: datetime, fixed: frozenset[str], profile: list[dict] | None = None
) -> Sample:
    """Return a sample of the records of a time range, `end` not included, with the features of a profile."""
    keys = list(within(app.pk, begin, end).order_by("-at", "-pk").values_list("pk", flat=True)[:MOST_KEYS])
    count, draw = len(keys), random.Random(f"{app.pk} {begin}")
    if count > SAMPLE:
        keys = draw.sample(keys, SAMPLE)
    keys.sort()
    inputs, outputs = Reservoir(SAMPLE), Reservoir(SAMPLE)
    chosen, answers = (
        Chosen(None if profile is None else [each["name"] for each in profile if each["side"] == side])
        for side in ("input", "output")
    )
    limit, unread = time.monotonic() + RECORDS_S, 0
    for at in range(0, len(keys), PAGE):
        for record in Record.objects.filter(pk__in=keys[at : at + PAGE]).order_by("pk"):
            given, answered = _of_side(record, "input", fixed), _of_side(record, "output", frozenset())
            unread += not given and not answered
            for row in given:
                inputs.add(chosen(row))
            for row in answered:
                outputs.add(answers(row))
        if time.monotonic() > limit:
            break
    return Sample(inputs.rows, outputs.rows, count, unread)


def _of_side(record: Record, side: str, fixed: frozenset[str]) -> list[Row]:
    value = records.value_of(record, side)
    if isinstance(value, str):
        if "csv" not in getattr(record, f"{side}_type") or getattr(record, f"{side}_kept") != Record.Kept.ALL:
            return _lenient(record, side, fixed)
        try:
            return [row for row, _at in zip(features.rows_of_csv(value), range(features.MAX_ROWS), strict=False)]
        except csv.Error:
            return []
    return features.rows_of(value, fixed) if isinstance(value, dict | list) else []


def _lenient(record: Record, side: str, fixed: frozenset[str]) -> list[Row]:
    """Return the rows of a whole body with NaN or infinity, which JSON has not and applications take."""
    if getattr(record, f"{side}_kept") != Record.Kept.ALL:
        return []
    try:
        value = sanitize.read_json(getattr(record, side))
    except ValueError:
        return []
    return features.rows_of(value, fixed) if isinstance(value, dict | list) else []


def fixed_of(app: Application) -> frozenset[str]:
    """Return the names of the model's inputs whose first axis does not count rows."""
    signature = app.model.signature
    specs = signature.get("inputs", []) if isinstance(signature, dict) else []
    shapes = {str(spec.get("name")): spec.get("shape") for spec in specs if isinstance(spec, dict)}
    return frozenset(name for name, shape in shapes.items() if isinstance(shape, list) and shape and shape[0] != -1)


def of_unread(sample: Sample) -> Message | None:
    """Return why nothing can be compared; None where something can."""
    if sample.inputs or sample.outputs:
        return None
    return Message("no body of these records can be read: they are cut off, withheld, or no JSON or CSV")
