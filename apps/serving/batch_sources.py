"""The rows of a dataset's files, as bodies of requests: CSV, NDJSON, NumPy arrays, and other files of one row each.

No Django: part of a scoring job (batch.py). A line of NDJSON is the body of one request; of a record that the platform
has exported (apps/records) it is the recorded input. Rows of CSV and of arrays are sent many at a time.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import bodies
import numpy as np

LINES, JSON, NPY = (".ndjson", ".jsonl"), "application/json", "application/x-npy"
MAX_LINE = 64 << 20
RECORD = {"id", "input", "output", "status", "time"}  # what a line of exported records has
STREAMED = ("stream", "stream_options")  # of a request to a language model, whose answer is read whole here


class Row(NamedTuple):
    """A row: its number within its file, from 0, what its source makes a body of, and why there is none."""

    file: str
    number: int
    content: object
    problem: str = ""
    kind: str = ""  # of a recorded input: its media type, and the path that it was sent to
    path: str = ""


class Source:
    """One file. `read` is how many of its bytes have been read; with `joins` a body may have several rows."""

    joins = False

    def __init__(self, path: Path, name: str):
        self.path, self.name, self.size, self.read = path, name, path.stat().st_size, 0

    def rows(self) -> Iterator[Row]:
        raise NotImplementedError

    def body(self, rows: list[Row]) -> tuple[bytes, str]:
        """Return a body with the rows, and its media type."""
        raise NotImplementedError


class Lines(Source):
    """NDJSON: empty lines do not count."""

    def rows(self) -> Iterator[Row]:
        number = 0
        with self.path.open("rb") as file:
            while line := file.readline(MAX_LINE + 1):
                self.read = file.tell()
                if not line.strip():
                    continue
                yield self._row(number, line)
                number += 1
                while len(line) > MAX_LINE and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE + 1)

    def _row(self, number: int, line: bytes) -> Row:
        if len(line) > MAX_LINE:
            return Row(self.name, number, b"", f"the line is longer than {MAX_LINE >> 20} MiB")
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(line)
            if isinstance(given, dict) and set(given) >= RECORD:
                return self._recorded(number, given)
        return Row(self.name, number, line)

    def _recorded(self, number: int, record: dict) -> Row:
        given, path = record["input"], record.get("path")
        if given is None:
            return Row(self.name, number, b"", "the record has no input")
        if record.get("input_kept") == "cut":
            return Row(self.name, number, b"", "the record has only the beginning of its input")
        if isinstance(given, dict):
            given = {name: value for name, value in given.items() if name not in STREAMED}
        content = given.encode(errors="replace") if isinstance(given, str) else json.dumps(given).encode()
        return Row(self.name, number, content, "", str(record.get("input_type") or ""), str(path or ""))

    def body(self, rows: list[Row]) -> tuple[bytes, str]:
        return rows[0].content, rows[0].kind or JSON


class Table(Source):
    """CSV, read as POST /predict reads it: the first row is a heading where it has names."""

    joins = True

    def __init__(self, path: Path, name: str, inputs: list[dict]):
        super().__init__(path, name)
        self.inputs, self.heading = inputs, []

    def rows(self) -> Iterator[Row]:
        names = [spec["name"] for spec in self.inputs]
        with self.path.open("rb") as file:
            start = file.read(2)
            file.seek(0)
            coding = "utf-16" if start in bodies.UTF16 else "utf-8-sig"
            errors = "strict" if "16" in coding else "surrogateescape"  # so that only rows with damage are refused
            text = io.TextIOWrapper(file, coding, errors, newline="")
            try:
                mark = bodies.mark_of(text.readline(MAX_LINE), names)
            except UnicodeError as problem:
                yield Row(self.name, 0, [], f"the file cannot be read ({problem})")
                return
            text.seek(0)
            number = 0
            cells = (row for row in csv.reader(_lines(text), delimiter=mark, strict=True) if row)
            for at, row in enumerate(self._whole(cells)):
                self.read = file.tell()
                if at == 0 and isinstance(row, list) and bodies.is_headed(row, self.inputs):
                    self.heading = row
                    continue
                problem = row if isinstance(row, str) else ""
                if not problem and not self.heading and bodies.is_headed(row, self.inputs):
                    problem = "the row has no values, only words"  # it would be read as a heading
                yield Row(self.name, number, [] if problem else row, problem)
                number += 1

    def _whole(self, cells: Iterator[list[str]]) -> Iterator[list[str] | str]:
        """Yield the rows; where the file cannot be read any further, the reason is the last one."""
        try:
            yield from cells
        except (csv.Error, UnicodeError) as problem:
            yield f"the file cannot be read from here on ({problem})"

    def body(self, rows: list[Row]) -> tuple[bytes, str]:
        text = io.StringIO()
        csv.writer(text).writerows([*([self.heading] if self.heading else []), *(row.content for row in rows)])
        return text.getvalue().encode(errors="surrogateescape"), "text/csv"


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines of a table. Raises csv.Error, UnicodeError."""
    while line := text.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise csv.Error(f"a line is longer than {MAX_LINE >> 20} MiB")
        yield line


class Array(Source):
    """A NumPy array, each entry of its first axis a row."""

    joins = True

    def rows(self) -> Iterator[Row]:
        try:
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
            if not isinstance(array, np.ndarray):
                array.close()
                raise ValueError("a .npz or another zip")
        except Exception as problem:  # of its parser: SyntaxError, TokenError, EOFError, BadZipFile and others
            self.read = self.size
            yield Row(self.name, 0, None, f"not an .npy file ({problem or type(problem).__name__})")
            return
        if not array.ndim:
            self.read = self.size
            yield Row(self.name, 0, None, "the array has no rows")
            return
        for number in range(len(array)):
            self.read = self.size * (number + 1) // len(array)
            yield Row(self.name, number, array[number : number + 1])

    def body(self, rows: list[Row]) -> tuple[bytes, str]:
        file = io.BytesIO()
        np.save(file, np.concatenate([row.content for row in rows]))
        return file.getvalue(), NPY


class Files(Source):
    """Files of one row each: pictures, JSON, or any for an input of BYTES."""

    def __init__(self, paths: list[Path], top: Path):
        self.paths, self.top, self.name = paths, top, ""
        self.size, self.read = sum(path.stat().st_size for path in paths), 0

    def rows(self) -> Iterator[Row]:
        for path in self.paths:
            name, problem = path.relative_to(self.top).as_posix(), ""
            if path.stat().st_size > MAX_LINE:
                problem = f"the file is larger than {MAX_LINE >> 20} MiB"
            self.read += path.stat().st_size
            yield Row(name, 0, path, problem)

    def body(self, rows: list[Row]) -> tuple[bytes, str]:
        path = rows[0].content
        return path.read_bytes(), bodies.BY_ENDING.get(path.suffix.lower().lstrip("."), bodies.BINARY)


def sources(top: Path, inputs: list[dict]) -> list[Source]:
    """Return the sources of a dataset in the order of their names; hidden files and links are left out."""
    found: list[Source] = []
    single: list[Path] = []
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            shown, ending = path.relative_to(top).as_posix(), path.suffix.lower()
            if ending in LINES:
                found.append(Lines(path, shown))
            elif ending == ".csv":
                found.append(Table(path, shown, inputs))
            elif ending == ".npy":
                found.append(Array(path, shown))
            else:
                single.append(path)
    found.sort(key=lambda source: source.name)
    return [*found, *([Files(single, top)] if single else [])]
