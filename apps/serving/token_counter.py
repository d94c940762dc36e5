"""The tokens that a language model has read and made for each caller's key, written to a small file while they grow.

No Django: part of the serving process. The gateway sends an opaque identifier of the caller's key (apps/keys.py); who
calls without a key is not counted. The file has {identifier: [prompt tokens, completion tokens]} since the process
began.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import orjson

HEADER = b"x-app-key"
KEPT = 400  # keys whose counts are kept, those used last; an application has fewer keys
LONGEST = 64  # characters of an identifier


class Tokens:
    """Counts tokens; thread-safe. Without a path nothing is written."""

    def __init__(self, path: Path | None = None):
        self.path, self.lock, self.writing = path, threading.Lock(), threading.Lock()
        self.counts: dict[str, list[int]] = {}
        self.changed = False

    def add(self, scope, prompt: int, completion: int) -> None:
        """Count tokens of a request for the key that it was made with."""
        key_id = dict(scope["headers"]).get(HEADER, b"").decode("latin-1")
        if not 0 < len(key_id) <= LONGEST or not (prompt or completion):
            return
        with self.lock:
            before = self.counts.pop(key_id, [0, 0])
            self.counts[key_id] = [before[0] + prompt, before[1] + completion]
            while len(self.counts) > KEPT:
                del self.counts[next(iter(self.counts))]
            self.changed = True

    def write(self) -> None:
        """Replace the file where something was counted since it was written."""
        with self.writing:
            with self.lock:
                changed, self.changed = self.changed, False
                data = orjson.dumps(self.counts)
            if self.path is None or not changed:
                return
            draft = self.path.with_name(f".{self.path.name}.part")
            try:
                draft.write_bytes(data)
                os.replace(draft, self.path)
            except OSError:  # a full disk must not stop the application; the next time has these counts, too
                self.changed = True
