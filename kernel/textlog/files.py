"""The files of a log: the log, the timestamps of its lines, and the index, which only the platform writes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kernel import storage

from . import times


@dataclass(frozen=True)
class LogFile:
    """The log at `base/path`; no link below `base` is followed."""

    base: Path
    path: str

    def open(self) -> BinaryIO | None:
        """Open the log; None if there is none, or if its path is not a regular file."""
        return storage.open_file(self.base, self.path)

    def open_times(self) -> BinaryIO | None:
        """Open the timestamps of the lines, which the recorder writes beside the log."""
        return storage.open_file(self.base, times.path_of(self.path))

    @property
    def index(self) -> Path:
        """Return the path of the index."""
        name = hashlib.sha256(f"{self.base}/{self.path}".encode("utf-8", "surrogateescape")).hexdigest()[:40]
        return storage.root() / "run" / "log_index" / name[:2] / name

    def forget(self) -> None:
        """Remove the index of a log that is removed."""
        self.index.unlink(missing_ok=True)
