"""The manifest of a snapshot: plain JSON in the row. The SHA-256 of its canonical form identifies the snapshot.

Paths are relative to `.home`. A name that cannot be stored as text is escaped by `shown`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from django.utils.translation import gettext_noop as _

# Why a file was not kept. Such a file is a link to the one in .home, where the run finds it as it is then.
REASONS = {
    "ignored": _("excluded by .mlpignore or the default patterns"),
    "bytes": _("larger than what was left of the limit on bytes"),
    "count": _("beyond the limit on the number of files"),
    "storage": _("your storage for code is full"),
    "link": _("a symbolic link"),
    "special": _("not a regular file"),
    "name": _("its name has control characters or is not UTF-8"),
    "deep": _("too deeply nested"),
    "unread": _("it could not be read"),
    "changed": _("it changed while it was read"),
}


@dataclass(frozen=True)
class File:
    """A saved file. `blob` is its name in the store."""

    path: str
    blob: str
    size: int

    @property
    def mode(self) -> int:
        return 0o555 if self.blob.endswith("x") else 0o444

    @property
    def sha256(self) -> str:
        return self.blob[:64]


@dataclass(frozen=True)
class Skipped:
    """A file or folder (its path ends with "/") that was not saved."""

    path: str
    reason: str
    size: int = 0


@dataclass
class Manifest:
    """The files of a snapshot. `open` are the folders with more entries than are listed here: a run sees all entries of
    .home in them. `more` is the number of entries that are not listed, as far as they were counted.
    """

    folder: str
    files: list[File] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    more: int = 0

    def as_data(self) -> dict:
        return {
            "folder": self.folder,
            "files": [[each.path, each.blob, each.size] for each in self.files],
            "skipped": [[each.path, each.reason, each.size] for each in self.skipped],
            "open": self.open,
            "more": self.more,
        }

    @property
    def digest(self) -> str:
        text = json.dumps(self.as_data(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)

    def file(self, path: str) -> File | None:
        return next((each for each in self.files if each.path == path), None)


def from_data(data: dict) -> Manifest:
    """Return the manifest of a row."""
    return Manifest(
        data["folder"],
        [File(*each) for each in data["files"]],
        [Skipped(*each) for each in data["skipped"]],
        data["open"],
        data["more"],
    )


def shown(path: str) -> str:
    """Return a path as storable text: control characters and bytes that are not UTF-8 are escaped."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(f"\\x{ord(char):02x}" if ord(char) < 32 or ord(char) == 127 else char for char in text)
