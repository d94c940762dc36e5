"""Progress: a bar on a terminal, plain lines elsewhere, nothing with --quiet.

It is written to standard error; standard output has results only.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

LINE_EVERY_S = 10.0
WINDOW_S = 8.0


COUNTED = re.compile(r"\{(\w+)\} (file|byte|minute)s\b")


def filled(text: str, values: Mapping[str, Any]) -> str:
    """Return the sentence with its values; what an English one counts is singular where there is one of it."""
    return COUNTED.sub(lambda match: match[0][:-1] if values[match[1]] == 1 else match[0], text).format(**values)


def size(count: float) -> str:
    """Format bytes: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """Format seconds: `1:02:03` or `2:03`."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 60}:{whole % 60:02d}"


class Progress:
    """The bytes and files of all threads; one more thread draws the bar."""

    def __init__(self, word: str, total: int, files: int, quiet: bool):
        self.word, self.total, self.files, self.quiet = word, total, files, quiet
        self.done = self.moved = self.finished = 0
        self.lock, self.end = threading.Lock(), threading.Event()
        self.tty = sys.stderr.isatty()
        self.began = time.monotonic()
        self.window: deque = deque([(self.began, 0)])
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        if not self.quiet:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        if self.thread.is_alive():
            self.thread.join()
        if self.tty and not self.quiet:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def add(self, count: int, *, moved: bool = True) -> None:
        """Count `count` bytes as done, negative ones when a try has failed. `moved` False: they need no transfer."""
        with self.lock:
            self.done += count
            if moved and count > 0:
                self.moved += count

    def file_done(self) -> None:
        """Count one file as done."""
        with self.lock:
            self.finished += 1

    def percent(self) -> int:
        """Return how much is done; 100 only when there is nothing to do."""
        return 100 if not self.total else max(0, min(99, int(100 * self.done / self.total)))

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self.quiet:
            return
        sys.stderr.write(("\r\033[K" if self.tty else "") + printable(line) + "\n")
        sys.stderr.flush()

    def rate(self) -> float:
        """Return the bytes per second of the last seconds."""
        now = time.monotonic()
        self.window.append((now, self.moved))
        while len(self.window) > 2 and now - self.window[0][0] > WINDOW_S:
            self.window.popleft()
        then, before = self.window[0]
        return (self.moved - before) / max(now - then, 0.001)

    def _run(self) -> None:
        last = time.monotonic()
        while not self.end.wait(0.2):
            rate = self.rate()
            if self.tty:
                sys.stderr.write("\r" + self._bar(rate) + "\033[K")
                sys.stderr.flush()
            elif time.monotonic() - last > LINE_EVERY_S:
                last = time.monotonic()
                sys.stderr.write(self._text(rate) + "\n")
                sys.stderr.flush()

    def _text(self, rate: float) -> str:
        left = max(0, self.total - self.done)
        eta = duration(left / rate) if rate > 1 else "-:--"
        return (
            f"{self.word} {self.percent():3d}%  {size(self.done)} of {size(self.total)}  {size(rate)}/s  "
            f"ETA {eta}  {self.finished}/{self.files} files"
        )

    def _bar(self, rate: float) -> str:
        text, columns = self._text(rate), shutil.get_terminal_size().columns - 1
        room = min(30, columns - len(text) - 3)
        if room < 5:
            return text[:columns]
        full = room * self.percent() // 100
        return "[" + "#" * full + "-" * (room - full) + "] " + text


def printable(text: str) -> str:
    """Return the text without what the terminal cannot show; file names may contain anything."""
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean.encode(encoding, "backslashreplace").decode(encoding)
