"""Copies the objects of a bucket to a dataset's folder: several at once, large ones in pieces."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from kernel import disk, names, storage
from kernel.errors import Refused
from kernel.messages import Message

from .. import copies, lifecycle
from ..models import Dataset
from . import rows
from .store import Entry, Store

AT_ONCE = 8
WAITING = 4 * AT_ONCE  # pieces that are asked for: a bucket may have a million objects
LISTED_AT_ONCE = 1000  # as S3 answers
MAX_BYTES = 1 << 60  # of a source; what the database counts is a few times more
SAID_EVERY_S = 1.0
ALLOWED_EVERY_S = 10.0  # a copy may take hours, and a bucket be taken from its user meanwhile


def check(user, src: str) -> int:
    """Return 0: the size of a source is found by its copy. Raises Refused where the user may not read the bucket."""
    name, _path = rows.parse(src)
    rows.find(user, name)
    return 0


def write(row: Dataset, folder: Path, written: Callable[[int], object]) -> Message | None:
    """Write the objects that a dataset's source names. Returns what is to be said of those that are left out.

    Raises Refused, also where the tenant has no room for them; DiskFull, OSError.
    """
    left_out = copies.LeftOut()

    def reserve(size: int) -> None:
        lifecycle.declare_again(row.pk, size)
        row.refresh_from_db(fields=["size"])

    copy_to(folder, row.user, row.src, copies.MAX_FILES, reserve, written, left_out)
    return left_out.reason() or None


def copy_to(
    folder: Path, user, src: str, most: int, reserve: Callable[[int], object], written: Callable[[int], object],
    left_out: Callable[[str], object],
) -> None:  # fmt: skip
    """Write the objects of a source, at most so many, to a folder. `reserve` is called with their bytes before,
    `written` with those written so far, also while they are listed, `left_out` with the path of each that cannot be a
    file. Raises Refused, DiskFull, OSError, and what the functions raise.
    """
    name, path = rows.parse(src)
    store, asked = Store(rows.find(user, name)), time.monotonic()

    def goes_on(size: int) -> None:
        nonlocal asked
        if time.monotonic() - asked >= ALLOWED_EVERY_S:
            rows.find(user, name)
            asked = time.monotonic()
        written(size)

    entries = listed(store, path, most, left_out, lambda: goes_on(0))
    total = sum(entry.size for entry in entries)
    if not total:
        raise Refused("%(src)s has no files, or only empty ones", field="src", src=src)
    disk.require(total)
    reserve(total)
    fetch(store, entries, folder, top_of(path, entries), goes_on)


def top_of(path: str, entries: list[Entry]) -> str:
    """Return the folder below which the objects of a source are files: the path, or that of the one object at it."""
    return path if len(entries) != 1 or entries[0].path != path else path.rpartition("/")[0]


def listed(
    store: Store, path: str, most: int, left_out: Callable[[str], object], goes_on: Callable[[], object]
) -> list[Entry]:
    """Return the objects below a path that can be files. `goes_on` is called now and then, and what it raises ends it.
    Raises Refused where there are too many, or too deep ones.
    """
    entries: dict[str, Entry] = {}
    for number, entry in enumerate(store.list(path)):
        if number >= most:  # also of a server that lists the same again
            raise Refused("must have at most %(limit)s files", field="src", limit=most)
        if number % LISTED_AT_ONCE == 0:
            goes_on()
        entries[entry.path] = entry
    if sum(each.size for each in entries.values()) > MAX_BYTES:
        raise Refused("must have at most %(limit)s bytes", field="src", limit=MAX_BYTES)
    folders = {parent for each in entries for parent in _parents(each)}
    for each in list(entries):
        if each in folders or not each:  # an object that marks a folder is none; one with bytes cannot be beside it
            marker = entries.pop(each)
            if marker.size:
                left_out(each)
            continue
        if each.count("/") - path.count("/") > storage.LEVELS:
            raise Refused("must not nest folders more than %(limit)s deep", field="src", limit=storage.LEVELS)
        try:
            names.file_path(each)
        except Refused:
            left_out(entries.pop(each).path)
    return [entries[each] for each in sorted(entries)]


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


class Work:
    """What the threads of a copy have written, and whether they are to end."""

    def __init__(self):
        self.bytes, self.lock, self.ends = 0, threading.Lock(), False

    def write(self, chunks: Iterator[bytes], file: Path, start: int) -> None:
        """Write chunks to a place of a file. Raises DiskFull, OSError, and what the chunks raise."""
        with file.open("r+b") as out:
            out.seek(start)
            for chunk in chunks:
                if self.ends:
                    return
                disk.require(len(chunk))
                out.write(chunk)
                with self.lock:
                    self.bytes += len(chunk)
            out.flush()
            os.fsync(out.fileno())  # which writes what other pieces have left, too


def fetch(store: Store, entries: list[Entry], folder: Path, top: str, written: Callable[[int], object]) -> None:
    """Write objects to files, named by their paths below `top`. Their bytes are on the disk at the end."""
    work, pool, running = Work(), ThreadPoolExecutor(AT_ONCE), set[Future[None]]()
    try:
        for entry, start, end in store.pieces(entries):
            file = folder / (entry.path.removeprefix(f"{top}/") if top else entry.path)
            if start == 0:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
            if start == end:
                continue
            running.add(pool.submit(work.write, store.read(entry, start, end), file, start))
            while len(running) >= WAITING:
                _settle(running)
                written(work.bytes)
        while running:
            _settle(running)
            written(work.bytes)
    finally:
        work.ends = True
        pool.shutdown(cancel_futures=True)


def _settle(running: set[Future[None]]) -> None:
    """Wait until some have ended, at most SAID_EVERY_S, and take these out of the set. Raises what has ended one."""
    ended, _others = wait(running, SAID_EVERY_S, FIRST_COMPLETED)
    running -= ended
    for each in ended:
        each.result()
