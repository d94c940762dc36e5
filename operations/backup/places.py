"""Where backups are kept: a folder or an S3 bucket. Both store whole objects by name, and never half of one.

A folder may be on another machine (NFS, SMB, sshfs). What is written is on the disk before `write` returns.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

DRAFTS = "drafts"
MAY_BE_THERE = {DRAFTS, "lost+found"}


class BackupError(Exception):
    """The backup or the restore cannot go on; the message says what to do."""


class Stored(NamedTuple):
    """An object in a place: `name` has slashes, `size` is in bytes."""

    name: str
    size: int
    modified: datetime


class Place(ABC):
    """A folder or a bucket. Raises BackupError when it does not answer or refuses."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the object. Raises FileNotFoundError."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Store the object, whole or not at all; one of that name is replaced."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[Stored]:
        """Yield the objects whose names begin with `prefix/`, in no order."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove the object. A missing one is no error."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether there is nothing yet, so that a new repository may be made."""

    def clear_drafts(self) -> None:  # noqa: B027  a bucket has none
        """Remove what killed writers have left. Called by the only writer."""


class Folder(Place):
    """A place in the file system."""

    def __init__(self, path: Path):
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def read(self, name: str) -> bytes:
        with self._told(name, missing=True):
            return (self.path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self.path / name
        draft = self.path / DRAFTS / secrets.token_hex(12)
        with self._told(name):
            for folder in (draft.parent, path.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(path.parent)

    def list(self, prefix: str) -> Iterator[Stored]:
        with self._told(prefix):
            for folder, _, names in os.walk(self.path / prefix):
                for name in names:
                    path = Path(folder, name)
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        info = path.stat()
                        when = datetime.fromtimestamp(info.st_mtime, UTC)
                        yield Stored(str(path.relative_to(self.path)), info.st_size, when)

    def remove(self, name: str) -> None:
        with self._told(name):
            (self.path / name).unlink(missing_ok=True)

    def is_empty(self) -> bool:
        with self._told(""):
            return not self.path.exists() or not {path.name for path in self.path.iterdir()} - MAY_BE_THERE

    def clear_drafts(self) -> None:
        for draft in list(self.list(DRAFTS)):
            self.remove(draft.name)

    @contextlib.contextmanager
    def _told(self, name: str, missing: bool = False) -> Iterator[None]:
        """Raise what the file system refuses as BackupError; with `missing` let FileNotFoundError through."""
        try:
            yield
        except OSError as problem:
            if missing and isinstance(problem, FileNotFoundError):
                raise
            raise BackupError(f"{self.path / name}: {problem.strerror}") from problem


def sync_folder(path: Path) -> None:
    """Return once the folder's entries are on the disk, as far as its file system can tell."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no such call for folders
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
