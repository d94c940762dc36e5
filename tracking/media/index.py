"""The media of a run: those of `media/index.jsonl` in its output, validated and sorted, and the pictures that MLflow's
`log_image(key=, step=)` has stored as artifacts, whose names say what they are.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from jobs.artifacts import files
from jobs.models import Job
from kernel import sanitize, storage
from kernel.errors import Refused
from tracking.metrics.serializers import SERIES_NAME

KINDS = ("image", "table", "histogram", "matrix", "audio", "text")
SEVERAL = ("image", "audio")  # kinds of which one step may have several
FOLDER = "media"
READ_LIMIT = 16 << 20  # bytes of the index
MAX_ITEMS = 20000
MAX_CAPTION = 500
LONGEST_LINE = 8192
LOGGED, IMAGES = "logged/", "artifacts/images"  # how an item calls MLflow's folder of pictures, and the folder
# Of a picture of MLflow: releases differ in what stands between the parts, and for `/` in the key.
PICTURE = re.compile(
    r"(?P<key>[^/\x00-\x1f]{1,150}?)(?P<by>[%+])step(?P=by)(?P<step>[0-9]{1,15})(?P=by)timestamp(?P=by)"
    r"(?P<time>[0-9]{1,15})(?P=by)[0-9a-z-]{32,36}\.png"
)
FILE = re.compile(rf"[a-z]{{1,20}}/[A-Za-z0-9_][A-Za-z0-9_-]{{0,99}}\.[a-z0-9]{{1,5}}|{LOGGED}(?:{PICTURE.pattern})")
NAME = re.compile(SERIES_NAME)
ODD = re.compile(r"[^A-Za-z0-9_.:/ -]")


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
        items: dict[tuple[str, str], dict[int, list[Item]]] = {}
        for item in self.items:
            steps = items.setdefault((item.kind, item.name), {})
            before = steps.get(item.step, [])
            if before and (before[0].attempt < item.attempt or item.kind not in SEVERAL):
                before = []
            steps[item.step] = [*before, item]
        ordered = sorted(items.items(), key=lambda entry: (entry[0][1], KINDS.index(entry[0][0])))
        return {key: dict(sorted(steps.items())) for key, steps in ordered}


def of_job(job: Job) -> Index:
    """Return the run's media; empty if the script has logged none."""
    folder = storage.job_dir(job.user.username, job.name)
    pictures = _pictures(job, _version(folder, IMAGES))
    file = _open(folder)
    if file is None:
        return Index(pictures, 0)
    with file:
        info = os.fstat(file.fileno())
    index = _read(folder, (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns))
    return index._replace(items=(*index.items, *pictures)) if pictures else index


def path_of(file: str) -> str:
    """Return the path in the run's output of the file of an item."""
    return f"{IMAGES}/{file.removeprefix(LOGGED)}" if file.startswith(LOGGED) else f"{FOLDER}/{file}"


def _version(folder: Path, path: str) -> tuple:
    with suppress(Refused):
        info = storage.status(folder, path)
        return () if info is None else (info.st_dev, info.st_ino, info.st_mtime_ns)
    return ()


@lru_cache(maxsize=16)
def _pictures(job: Job, version: tuple) -> tuple[Item, ...]:
    """Return the pictures that MLflow's client has logged. `version` is that of their folder, for the cache."""
    pictures = []
    if version:
        with suppress(Refused):
            for entry in files.listing(job, IMAGES) or ():
                match = PICTURE.fullmatch(entry.name)
                if match and len(pictures) < MAX_ITEMS:
                    name = ODD.sub("_", match["key"].replace("~", "/").replace("#", "/"))[:100]
                    name = name if NAME.fullmatch(name) else f"x{name}"[:100]
                    time = int(match["time"]) / 1000
                    pictures.append(Item("image", name, int(match["step"]), f"{LOGGED}{entry.name}", time, 1, "", 0))
    return tuple(sorted(pictures, key=lambda item: item.time))


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
        if item is None or len(items) >= MAX_ITEMS:
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
    whole = all(type(number) is int and 0 <= number < 2**53 for number in (step, attempt, rows))
    if not whole or kind not in KINDS or type(time) not in (int, float) or not 0 <= time < 1e11:
        return None
    texts = all(isinstance(text, str) for text in (name, file, caption))
    if not texts or not NAME.fullmatch(name) or not FILE.fullmatch(file):
        return None
    return Item(kind, name, step, file, time, attempt, sanitize.text(caption)[:MAX_CAPTION], rows)
