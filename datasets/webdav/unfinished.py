"""Unfinished files: the parts of large uploads that have arrived so far. No HTTP here; put/part.py speaks it.

An unfinished file lies beside the datasets, visible to nobody, and survives any interruption:
`{root}/datasets/.spool/parts/{user}/{dataset}/{hash of the path}.{total bytes}`. The first part is renamed to it, each
further one is appended inside the kernel, so no more than one part is on the disk twice. spool.py removes those that
nobody can finish.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from kernel import storage
from kernel.messages import Message

from . import tree
from .errors import HttpError
from .paths import Target

FOLDER = "parts"
LOCKS = "lock-"


def folder(user: str, dataset: str) -> Path:
    """Return the folder of the dataset's unfinished files; it may not exist."""
    return storage.spool_dir() / FOLDER / user / dataset


def arrived(target: Target, total: int) -> int:
    """Return how many bytes of the file have arrived."""
    try:
        return _path(target, total).lstat().st_size
    except FileNotFoundError:
        return 0


def completed(target: Target, total: int) -> Path | None:
    """Return the file when all of it has arrived and it only has to be put into place, else None."""
    return _path(target, total) if total and arrived(target, total) == total else None


def bytes_of_others(target: Target) -> int:
    """Return how many bytes the dataset's other unfinished files have."""
    own, count = _path(target, 0), 0
    with contextlib.suppress(FileNotFoundError), os.scandir(own.parent) as entries:
        for entry in entries:
            if not entry.name.startswith(own.stem):
                with contextlib.suppress(FileNotFoundError):
                    count += entry.stat(follow_symlinks=False).st_size
    return count


def require_next(target: Target, first: int, total: int) -> None:
    """Raise HttpError 409 unless byte `first` is the next one to come. Byte 0 always is: it starts the file over."""
    size = arrived(target, total)
    if first not in {0, size}:
        raise HttpError(
            409,
            Message("the next part must begin at byte %(offset)s", offset=size),
            field="Content-Range",
            Upload_Offset=str(size),
        )


def append(target: Target, first: int, total: int, body: Path, size: int) -> Path | None:
    """Add the `size` bytes of `body` at byte `first`; return the file once it is complete.

    Raises HttpError 409 when another part is the next one, OSError when the disk fails.
    """
    draft = _path(target, total)
    draft.parent.mkdir(parents=True, exist_ok=True)
    with _locked(draft):
        require_next(target, first, total)
        if first == 0:
            for other in draft.parent.glob(f"{draft.stem}.*"):
                other.unlink(missing_ok=True)  # an earlier try, perhaps of another length
            os.rename(body, draft)
        else:
            _append(draft, first, body, size)
    return completed(target, total)


def _path(target: Target, total: int) -> Path:
    name = hashlib.sha256(target.path.encode()).hexdigest()[:40]
    return folder(target.user, target.dataset) / f"{name}.{total}"


def _append(draft: Path, first: int, body: Path, size: int) -> None:
    reader = os.open(body, tree.FILE)
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
def _locked(draft: Path) -> Iterator[None]:
    """Let one part of a file be added at a time, in whichever process; a killed process leaves no lock behind."""
    lock = os.open(draft.parent / (LOCKS + draft.name[0]), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
