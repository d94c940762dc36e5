"""The folder of saved code, `{root}/code/{user}`: `blobs` by checksum, `trees` for runs, `seen` caches checksums.

Writers share the user's lock (`shared`) from the look-up of a blob until the row that refers to it is committed. Blobs
and trees are removed under the exclusive lock. A writer's drafts are in a separate folder, which is removed once its
rows are committed. A folder of drafts that is found under the exclusive lock is that of a killed writer, and lists the
blobs that it may have stored.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kernel import storage
from kernel.errors import Fault

CHUNK = 1 << 20
NAMES = "names"
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def folder(user: str) -> Path:
    return storage.root() / "code" / user


def drafts() -> Path:
    return storage.root() / "code" / ".drafts"


def blob_path(user: str, name: str) -> Path:
    return folder(user) / "blobs" / name


@contextlib.contextmanager
def shared(user: str) -> Iterator[None]:
    """Lock the user's store in shared mode, together with other writers."""
    with _lock(user, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def alone(user: str) -> Iterator[bool]:
    """Lock the user's store exclusively; yield False without waiting if a writer has it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_lock(user, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def _lock(user: str, kind: int) -> Iterator[None]:
    place = folder(user)
    place.mkdir(parents=True, exist_ok=True)
    handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, kind)
        yield
    finally:
        os.close(handle)


class Draft:
    """New blobs of one writer, which holds the store. `publish` puts them in place; `close` when rows refer to them."""

    def __init__(self, user: str):
        self.user = user
        self.place = drafts() / f"{user}.{secrets.token_hex(8)}"
        self.new: dict[str, Path] = {}

    def add(self, chunks: Iterator[bytes], executable: bool) -> tuple[str, int, bool]:
        """Write one file; return its blob's name, its size, and whether it is new. Raises Fault when it cannot be
        stored.
        """
        digest, size, suffix = hashlib.sha256(), 0, "x" if executable else ""
        path = self.place / secrets.token_hex(8)
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
                name = digest.hexdigest() + suffix
                if name in self.new or self.is_kept(name):
                    path.unlink()
                    return name, size, False
                file.flush()
                os.fchmod(file.fileno(), 0o555 if executable else 0o444)
                os.fsync(file.fileno())
        except OSError as problem:
            path.unlink(missing_ok=True)
            raise Fault("the code could not be stored: %(problem)s", problem=problem.strerror or "") from problem
        self.new[name] = path
        return name, size, True

    def drop(self, name: str) -> None:
        """Drop a new blob."""
        self.new.pop(name).unlink(missing_ok=True)

    def is_kept(self, name: str) -> bool:
        return blob_path(self.user, name).is_file()

    def publish(self) -> None:
        """Put the new blobs in place, durably. Before that their names are written down, for who cleans up after us."""
        if not self.new:
            return
        try:
            _write(self.place / NAMES, "\n".join(self.new).encode())
            target = folder(self.user) / "blobs"
            target.mkdir(parents=True, exist_ok=True)
            for name, path in self.new.items():
                path.rename(target / name)
            _sync(target)
        except OSError as problem:
            raise Fault("the code could not be stored: %(problem)s", problem=problem.strerror or "") from problem

    def close(self) -> None:
        storage.remove(self.place)


def left_by_killed(user: str) -> list[Path]:
    """Return the user's drafts; under the store's exclusive lock no writer is left, so all are abandoned."""
    return sorted(drafts().glob(f"{user}.*"))


def users_with_drafts() -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return {name.partition(".")[0] for name in os.listdir(drafts())}
    return set()


def names_in(draft: Path) -> list[str]:
    """Return the blobs that a killed writer may have put in place."""
    try:
        return [name for name in (draft / NAMES).read_text().split("\n") if name.rstrip("x").isalnum()]
    except FileNotFoundError:
        return []


def open_blob(user: str, name: str) -> BinaryIO | None:
    """Open the content of a saved file; None if it is missing."""
    try:
        return os.fdopen(os.open(blob_path(user, name), READ), "rb")
    except OSError:
        return None


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
