"""A large file in parts: PUT with `Content-Range: bytes {first}-{last}/{total}` to the file's own address, in order.

What has arrived is kept beside the datasets, out of everybody's sight, and goes on growing after any interruption; with
the last part the file appears whole, as with any PUT. A part is answered by 202 and `Upload-Offset`, the bytes that
have arrived; one that begins elsewhere by 409; `Content-Range: bytes */{total}` without a body only asks. The first
part is renamed, each further one is appended within the kernel, so no more than one part lies twice on the disk.

`{root}/datasets/.spool/parts/{user}/{dataset}/{hash of the path}.{total}`. Used by put.py, cleared by spool.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.http import HttpRequest

from kernel import storage

from . import tree
from .errors import HttpError
from .paths import Target

FOLDER = "parts"
RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18})")
LOCKS = "lock-"


@dataclass(frozen=True)
class Part:
    """Bytes `first` to `first + length` of a file of `total`; without a length it only asks what has arrived."""

    first: int
    length: int
    total: int


def told(request: HttpRequest) -> Part | None:
    """The part that the request's Content-Range names. Raises HttpError 400."""
    header = request.META.get("HTTP_CONTENT_RANGE", "")
    if not header:
        return None
    found = RANGE.fullmatch(header.strip())
    if found is None:
        raise HttpError(400, "Content-Range: must be bytes {first}-{last}/{total}, or bytes */{total} to ask")
    if found[1] is None:
        return Part(0, 0, int(found[3]))
    first, last, total = (int(number) for number in found.groups())
    if not first <= last < total:
        raise HttpError(400, "Content-Range: must name bytes inside of the file")
    return Part(first, last - first + 1, total)


def folder(user: str, dataset: str) -> Path:
    return storage.spool_dir() / FOLDER / user / dataset


def arrived(target: Target, total: int) -> int:
    """How many bytes of the file have arrived."""
    try:
        return place(target, total).lstat().st_size
    except FileNotFoundError:
        return 0


def whole(target: Target, total: int) -> Path | None:
    """The file when all of it has arrived, and only its last step is missing."""
    return place(target, total) if total and arrived(target, total) == total else None


def held(target: Target) -> int:
    """Bytes of the dataset's other unfinished files."""
    own, held_bytes = place(target, 0), 0
    with contextlib.suppress(FileNotFoundError), os.scandir(own.parent) as entries:
        for entry in entries:
            if not entry.name.startswith(own.stem):
                with contextlib.suppress(FileNotFoundError):
                    held_bytes += entry.stat(follow_symlinks=False).st_size
    return held_bytes


def must_fit(target: Target, part: Part) -> None:
    """Raises HttpError 409 when the part is not the next one. Part 0 is always: it begins anew."""
    have = arrived(target, part.total)
    if part.first not in {0, have}:
        raise HttpError(409, f"Content-Range: the next part begins at byte {have}", Upload_Offset=str(have))


def take(target: Target, part: Part, spool: Path, size: int) -> Path | None:
    """Adds the spooled part; returns the file once it is whole. Raises HttpError 400 or 409, OSError."""
    if size != part.length:
        raise HttpError(400, f"Content-Range: names {part.length} bytes, {size} arrived")
    draft = place(target, part.total)
    draft.parent.mkdir(parents=True, exist_ok=True)
    with _alone(draft):
        must_fit(target, part)
        if part.first == 0:
            for other in draft.parent.glob(f"{draft.stem}.*"):
                other.unlink(missing_ok=True)  # begun with another length, or anew
            os.rename(spool, draft)
        else:
            _append(draft, part.first, spool, size)
    return whole(target, part.total)


def place(target: Target, total: int) -> Path:
    name = hashlib.sha256(target.path.encode()).hexdigest()[:40]
    return folder(target.user, target.dataset) / f"{name}.{total}"


def _append(draft: Path, first: int, spool: Path, size: int) -> None:
    reader = os.open(spool, tree.FILE)
    try:
        writer = os.open(draft, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            tree.copy_bytes(reader, writer, size, first)
        except BaseException:
            os.ftruncate(writer, first)
            raise
        finally:
            os.close(writer)
    finally:
        os.close(reader)


@contextlib.contextmanager
def _alone(draft: Path) -> Iterator[None]:
    """One part of a file at a time, whichever process takes it; a killed one leaves no lock."""
    lock = os.open(draft.parent / (LOCKS + draft.name[0]), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
