"""A cache of the checksums of a folder's files, so that an unchanged file is not read again.

An entry is valid for one inode with the same size, mtime and ctime. It is only written for a file that had not changed
for two seconds when it was read: a change within the resolution of the file system's clock would go unnoticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time

from kernel import storage

from . import store
from .scan import Found

SETTLED_NS = 2_000_000_000
MAX_FOLDERS = 200
LARGEST = 8 << 20


class Seen:
    """The cached checksums of one folder's files."""

    def __init__(self, user: str, folder: str):
        self.place = store.folder(user) / "seen"
        self.path = self.place / f"{hashlib.sha256(folder.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"
        self.old = self._read()
        self.new: dict[str, list] = {}
        self.changed = False

    def _read(self) -> dict[str, list]:
        with contextlib.suppress(OSError, ValueError):
            if self.path.stat().st_size <= LARGEST and isinstance(known := json.loads(self.path.read_bytes()), dict):
                return known
        return {}

    def blob(self, file: Found) -> str:
        """Return the name of the file's blob; "" if the file has to be read."""
        known = self.old.get(file.path)
        if not known or tuple(known[:4]) != file.state or known[4].endswith("x") != file.executable:
            return ""
        self.new[file.path] = known
        return known[4]

    def note(self, file: Found, blob: str) -> None:
        """Add a file that was read just now."""
        self.changed = True
        if file.state[3] < time.time_ns() - SETTLED_NS:
            self.new[file.path] = [*file.state, blob]

    def save(self) -> None:
        """Write the cache. A failure only makes the next submission slower."""
        if not self.changed:
            return
        with contextlib.suppress(OSError):
            if not self.path.exists() and len(list(self.place.glob("*.json"))) >= MAX_FOLDERS:
                storage.remove(self.place)
            self.place.mkdir(parents=True, exist_ok=True)
            draft = self.path.with_suffix(f".{time.monotonic_ns()}.part")
            draft.write_text(json.dumps(self.new))
            draft.replace(self.path)
