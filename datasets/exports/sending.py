"""Sends the files of an export to its bucket: several at once, large ones in parts.

A worker that was killed is followed by another, which leaves what is there already. Parts of an object that
was not completed are none; the server keeps them until a rule of the bucket removes them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from django.utils import timezone

from kernel import after_commit, copying
from kernel.errors import Refused
from kernel.messages import Message

from .. import copies
from ..buckets import rows as buckets
from ..buckets import writing
from ..buckets.store import SENT, Entry, Store
from ..copies import LeftOut, holding
from ..models import Export, ExportState
from . import lifecycle, sources

AT_ONCE = 4
WAITING = 4 * AT_ONCE  # files that are open
SAID_EVERY_S = 1.0
ALLOWED_EVERY_S = 10.0
AGAIN_MS = 1000
LISTED_AT_ONCE = 1000  # objects, as S3 answers
TURN = Message("waits for other copies and exports")


class _Ended(Exception):
    """The export does not run any more: its owner has cancelled."""


def run(pk: int, follow: bool = True) -> None:
    """Send the files, unless another worker does. One export of a user at a time, in one of the places that copies and
    fetches have.
    """
    row = Export.objects.select_related("user").filter(pk=pk, state__in=lifecycle.LIVE).first()
    if row is None:
        return
    with (
        holding(f"datasets.export.{pk}") as alone,
        holding(f"datasets.exports.of.{row.user_id}") as first,
        holding(*copies.PLACES if alone and first else ()) as has_place,
    ):
        if not alone:
            return
        if not has_place:
            lifecycle.note_wait(pk, TURN)
            return
        try:
            if not _send(row, follow):
                return
        except _Ended:
            pass
        except Refused as problem:
            lifecycle.fail(pk, problem.problem)
        except OSError as problem:
            lifecycle.fail(pk, Message("could not be read (%(problem)s)", problem=problem.strerror))
    waiting = Export.objects.filter(user=row.user_id, state=ExportState.QUEUED).order_by("pk")
    for other in waiting.values_list("pk", flat=True)[:1]:
        after_commit.enqueue("datasets.export", other, False, queue="files")


def _send(row: Export, follow: bool) -> bool:
    """Send the files; return whether the export has ended. Raises Refused, OSError, _Ended."""
    name, path = buckets.parse(row.target, "target")
    store = Store(buckets.find_writable(row.user, name), SENT)
    source = sources.require_same(row.user, row.src, row.object_id)
    if source.may_change:
        lifecycle.note_wait(row.pk, copies.WAITS)
        if follow:
            after_commit.enqueue("datasets.export", row.pk, queue="files", delay_ms=AGAIN_MS)
        return False
    if not lifecycle.begin(row.pk):
        return True
    work, left_out = _Work(row, name, f"{path}/" if path else ""), LeftOut()
    sizes = _sizes(store, source.path, work, left_out)
    work.total = sum(sizes.values())
    there = _listed(store, work, sizes)
    sent = _send_all(store, source.path, sizes, there, work)
    sources.require_same(row.user, row.src, row.object_id)  # it may have been deleted while its folders were listed
    _require_all(store, work, sizes)
    said = left_out.reason() or ("" if sizes else Message("%(src)s has no files", src=row.src))
    lifecycle.complete(row.pk, size=work.total, files=len(sizes), sent=sent, reason=said)
    return True


class _Work:
    """How far an export is, for its threads and its page."""

    def __init__(self, row: Export, bucket: str, top: str):
        self.row, self.bucket, self.top = row, bucket, top
        self.total = self.read = self.sent = 0
        self.lock, self.ends = threading.Lock(), False
        self.said = self.asked = time.monotonic()

    def count(self, size: int) -> None:
        """Count bytes that a thread has read. Raises _Ended."""
        if self.ends:
            raise _Ended
        with self.lock:
            self.read += size

    def goes_on(self) -> None:
        """Record progress, at most once a second. Raises _Ended; Refused where the user may not write any more."""
        now = time.monotonic()
        if now - self.asked >= ALLOWED_EVERY_S:
            buckets.find_writable(self.row.user, self.bucket)
            self.asked = now
        if now - self.said < SAID_EVERY_S:
            return
        self.said, row = now, self.row
        progress = min(100 * self.read // max(self.total, 1), 99)
        running = Export.objects.filter(pk=row.pk, state=ExportState.RUNNING)
        if not running.update(progress=progress, sent=self.sent, touched=timezone.now()):
            raise _Ended
        after_commit.changed(row.user.username, "export", row.history_name, moving=True)


def _sizes(store: Store, source: Path, work: _Work, left_out: LeftOut) -> dict[str, int]:
    """Return the sizes of the files of a source by path. Raises Refused, OSError."""
    sizes: dict[str, int] = {}
    for path, handle in copying.open_files(source, left_out, True, left_out.empty):
        if len(sizes) >= copies.MAX_FILES:
            raise Refused("must have at most %(limit)s files", field="src", limit=copies.MAX_FILES)
        if len(sizes) % LISTED_AT_ONCE == 0:
            work.goes_on()
        writing.require_key(store, work.top + path, path)
        sizes[path] = os.fstat(handle).st_size
    return sizes


def _listed(store: Store, work: _Work, sizes: dict[str, int]) -> dict[str, Entry]:
    """Return what the bucket has at the places of the files. Raises Refused."""
    there: dict[str, Entry] = {}
    for number, entry in enumerate(store.list(work.top.removesuffix("/"))):
        if number % LISTED_AT_ONCE == 0:
            work.goes_on()
        path = entry.path.removeprefix(work.top)
        if path in sizes and entry.path.startswith(work.top):
            there[path] = entry
    return there


def _send_all(store: Store, source: Path, sizes: dict[str, int], there: dict[str, Entry], work: _Work) -> int:
    """Send the files that the bucket does not have; return how many. Raises Refused, OSError, _Ended."""
    pool, running, seen = ThreadPoolExecutor(AT_ONCE), set[Future[bool]](), 0
    try:
        for path, handle in copying.open_files(source, whole=True):
            if path not in sizes:
                raise Refused(writing.CHANGED, path=path)
            seen += 1
            running.add(pool.submit(_send_one, store, os.dup(handle), path, there.get(path), work))
            while len(running) >= WAITING:
                _settle(running, work)
        while running:
            _settle(running, work)
    finally:
        work.ends = True
        pool.shutdown()
    if seen != len(sizes):
        raise Refused(copying.CHANGED)
    return work.sent


def _send_one(store: Store, handle: int, path: str, there: Entry | None, work: _Work) -> bool:
    """Send a file unless the bucket has it, and close it; return whether it was sent."""
    try:
        if work.ends:
            return False
        file = writing.File(path, handle)
        if file.is_at(there, _only_ends(work)):
            work.count(file.size)
            return False
        writing.write(store, file, work.top + path, work.count)
        return True
    finally:
        os.close(handle)


def _only_ends(work: _Work) -> Callable[[int], None]:
    return lambda _size: work.count(0)


def _settle(running: set[Future[bool]], work: _Work) -> None:
    """Wait until some have ended, at most SAID_EVERY_S, and take these out of the set. Raises what has ended one."""
    ended, _others = wait(running, SAID_EVERY_S, FIRST_COMPLETED)
    running -= ended
    work.sent += sum(each.result() for each in ended)
    work.goes_on()


def _require_all(store: Store, work: _Work, sizes: dict[str, int]) -> None:
    """Raise Refused, which names an object, unless the bucket has all files with their sizes."""
    there = _listed(store, work, sizes)
    for path, size in sizes.items():
        if path not in there or there[path].size != size:
            raise Refused("the object %(path)s is not in the bucket as it was sent", path=work.top + path)
