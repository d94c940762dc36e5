"""The index of a run's media (`media/index.jsonl` in its output), validated and sorted."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from jobs.models import Job
from jobs.serializers import SERIES_NAME
from kernel import sanitize, storage

KINDS = ("image", "table", "histogram", "matrix", "audio", "text")
SEVERAL = ("image", "audio")  # kinds of which one step may have several
FOLDER = "media"
READ_LIMIT = 16 << 20  # bytes of the index
MOST_ITEMS = 20000
MOST_CAPTION = 500
LONGEST_LINE = 8192
FILE = re.compile(r"[a-z]{1,20}/[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\.[a-z0-9]{1,5}")
NAME = re.compile(SERIES_NAME)


class Item(NamedTuple):
    """One medium, logged once. `file` is its path in the run's folder of media."""

    kind: str
    name: str
    step: int
    file: str
    time: float
    attempt: int
    caption: str
    rows: int  # of a table, also those that were not kept


class Index(NamedTuple):
    """All media of a run, in the order in which they were logged, and how many lines are not valid."""

    items: tuple[Item, ...]
    invalid: int

    def media(self) -> dict[tuple[str, str], dict[int, list[Item]]]:
        """Return the items of each (kind, name) by step, sorted by name.

        If attempts have logged the same step, the later attempt's items are used. Of kinds that are shown once per
        step, the last item is used.
        """
        found: dict[tuple[str, str], dict[int, list[Item]]] = {}
        for item in self.items:
            steps = found.setdefault((item.kind, item.name), {})
            before = steps.get(item.step, [])
            if before and (before[0].attempt < item.attempt or item.kind not in SEVERAL):
                before = []
            steps[item.step] = [*before, item]
        ordered = sorted(found.items(), key=lambda entry: (entry[0][1], KINDS.index(entry[0][0])))
        return {key: dict(sorted(steps.items())) for key, steps in ordered}


def of_job(job: Job) -> Index:
    """Return the run's media; empty if the script has logged none."""
    folder = storage.job_dir(job.user.username, job.name)
    file = _open(folder)
    if file is None:
        return Index((), 0)
    with file:
        info = os.fstat(file.fileno())
    return _read(folder, (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns))


def _open(folder: Path) -> BinaryIO | None:
    return storage.open_file(folder, f"{FOLDER}/index.jsonl")


@lru_cache(maxsize=16)
def _read(folder: Path, _version: tuple) -> Index:
    """Return the media of the run in that folder. `_version` is that of the index, for the cache."""
    file = _open(folder)
    if file is None:
        return Index((), 0)
    with file:
        data = file.read(READ_LIMIT)
    items, invalid = [], 0
    *lines, unfinished = data.split(b"\n")
    for line in lines:
        item = _item(line)
        if item is None or len(items) >= MOST_ITEMS:
            invalid += 1
        else:
            items.append(item)
    return Index(tuple(items), invalid + (len(unfinished) > LONGEST_LINE))


def _item(line: bytes) -> Item | None:
    """Parse the line; return None if it is not one of `mlp_report`."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        row = sanitize.read_strict(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    kind, name, file, step = (row.get(key) for key in ("kind", "name", "file", "step"))
    attempt, time, rows, caption = row.get("attempt", 1), row.get("time", 0), row.get("rows", 0), row.get("caption", "")
    whole = all(type(one) is int and 0 <= one < 2**53 for one in (step, attempt, rows))
    if not whole or kind not in KINDS or type(time) not in (int, float) or not 0 <= time < 1e11:
        return None
    texts = all(isinstance(one, str) for one in (name, file, caption))
    if not texts or not NAME.fullmatch(name) or not FILE.fullmatch(file):
        return None
    return Item(kind, name, step, file, time, attempt, sanitize.text(caption)[:MOST_CAPTION], rows)
