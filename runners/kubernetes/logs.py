"""The log of a run: its pod's output, copied from the API server into the file that the RunSpec names.

Each portion is appended to the file and then recorded (the new length of the file, the time of the last line, the
number of lines with that time), so a copy that is interrupted at any moment continues where it was: what was appended
and not recorded is truncated and fetched again. No line comes twice, and none is lost that the node still keeps (by
default the last 10 MiB of a container). One process at a time copies the log of a run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from kernel.textlog import times

from ..base import log_of_worker
from . import files, object_names, pod_status, status
from .cluster import CALL_S, ApiError, Cluster, portions

log = logging.getLogger(__name__)

SILENCE_S = 60  # a silent stream is reopened after this time, since the connection may be dead
SKEW_S = 120  # largest difference between the clocks of a node and of this machine
END_LINES = 400
TIME_MS = 100  # between two marks of time at least
# What a node answers instead of the output of a container that it has removed, with the status of a success.
REMOVED = re.compile(rb"unable to retrieve container logs for \w+://")
STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")


@dataclass
class Position:
    """How far a pod's output has been copied: the `size` of the file, `second` and `nano` of the last line, the number
    of lines with that time (`same`), the bytes of the last one if it is incomplete (`part`). `full`: the limit was
    reached; `done`: the log is complete.
    """

    pod: str = ""
    size: int = 0
    second: int = 0
    nano: int = 0
    same: int = 0
    part: int = 0
    full: bool = False
    done: bool = False


class Copy:
    """The copy of the log of one worker of a run. Use it inside `mine()`."""

    container = "run"

    def __init__(self, cluster: Cluster, folder: Path, record: dict, worker: int = 0):
        spec = status.annotation(record, object_names.SPEC)
        name = record["metadata"]["name"] + (f".{worker}" if worker else "")
        self.cluster, self.limit = cluster, spec["log_limit"]
        self.file, self.root = log_of_worker(Path(spec["log"]), worker), cluster.settings.storage_root
        self.notes, self.lock = folder / f"{name}.json", folder / f"{name}.lock"
        self.position, self.marks = Position(), b""

    @contextlib.contextmanager
    def mine(self) -> Iterator[bool]:
        """Yield whether this caller has the lock and may copy; the lock ends with the process."""
        self.lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.lock, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            self.position = self.recorded()
            yield True

    def recorded(self) -> Position:
        """Return the position that was recorded last."""
        try:
            return Position(**json.loads(self.notes.read_bytes()))
        except FileNotFoundError:
            return Position()

    def finish(self, pod: dict) -> None:
        """Fetch the rest of an ended pod's output, or append a remark when it is no longer available."""
        if self.position.done:
            return
        try:
            if not self.position.full and not self._copy(pod, follow=False):
                self._remark(b"[the rest of the log cannot be had: its node no longer has it]\n")
            note = self._end_of(pod) if self.position.full else b""
        except ApiError as error:
            note = f"[the rest of the log cannot be had: {pod_status.short(error.message)}]\n".encode()
        if note:
            self._remark(note)
        self._close()

    def catch_up(self, pod: dict | None) -> None:
        """Fetch the output so far."""
        if pod and not self.position.done and not self.position.full:
            self._copy(pod, follow=False)

    def give_up(self, remark: str) -> None:
        """Close the log of a pod that was removed with its output; with a last remark."""
        if not self.position.done:
            if self.position.pod or remark:
                self._open(self.position.pod)
                self._remark(f"[{remark}]\n".encode())
            self._close()

    def follow(self, pod: dict, goes_on: Callable[[], bool]) -> None:
        """Copy until the stream ends or `goes_on()` is false. Raises RunnerError when the stream breaks off."""
        if not self.position.done and not self.position.full:
            self._copy(pod, follow=True, goes_on=goes_on)

    # --- internals ----------------------------------------------------------------------------------------
    def _copy(self, pod: dict, follow: bool, goes_on: Callable[[], bool] = lambda: True) -> bool:
        """Return whether the node has the output."""
        self._open(pod["metadata"]["uid"])
        options = {"container": self.container, "timestamps": True, "follow": follow}
        if self.position.second:
            options["since_seconds"] = max(1, int(time.time() - self.position.second) + SKEW_S)
        timeout = (CALL_S[0], SILENCE_S)
        skip = Skip(self.position)
        response = self.cluster.raw(
            self.cluster.core.read_namespaced_pod_log,
            pod["metadata"]["name"],
            self.cluster.namespace,
            timeout=timeout,
            **options,
        )
        for portion in portions(response):
            data = b"".join(map(self._timed(skip), portion))
            room = self.limit - self.position.size
            self.position.full = len(data) > room
            self._append(data[: max(0, room)])
            if self.position.full or self.recorded().done or not goes_on():
                response.close()
                break
        return not skip.removed

    def _timed(self, skip: Skip) -> Callable[[bytes], bytes]:
        """Return the filter for a portion, which also remembers when its lines were written."""
        size, last = self.position.size, 0

        def take(piece: bytes) -> bytes:
            nonlocal size, last
            data = skip(piece)
            now = self.position.second * 1000 + self.position.nano // 1_000_000
            if data and now >= last + TIME_MS:
                self.marks += times.PACKED.pack(size, now)
                last = now
            size += len(data)
            return data

        return take

    def _open(self, pod: str) -> None:
        """Truncate what was not recorded; the output of a new pod is appended at the end of the file."""
        with files.opened(self.file, self.root) as file:
            size = os.fstat(file).st_size
            if self.position.pod == pod and size > self.position.size:
                os.ftruncate(file, self.position.size)
        if self.position.pod != pod:
            broken, self.position = self.position.part, Position(pod=pod, size=size)
            self.marks += times.PACKED.pack(size + bool(broken), int(time.time() * 1000) | times.BEGIN)
            self._append(b"\n") if broken else self._record()

    def _append(self, data: bytes) -> None:
        if not data:
            return
        with files.opened(self.file, self.root) as file, open(file, "ab", closefd=False) as stream:
            stream.write(data)
        self._append_marks()
        self.position.size += len(data)
        self._record()

    def _append_marks(self) -> None:
        """Write down when lines were written; a log does not depend on it."""
        marks, self.marks = self.marks, b""
        if marks:
            path = Path(times.path_of(str(self.file)))
            with contextlib.suppress(OSError), files.opened(path, self.root) as file:
                os.write(file, marks)

    def _remark(self, text: bytes) -> None:
        """Append the text on a line of its own."""
        broken, self.position.part = self.position.part, 0
        self._append(b"\n" + text if broken else text)

    def _record(self) -> None:
        draft = self.notes.with_suffix(".part")
        draft.write_text(json.dumps(asdict(self.position)))
        draft.replace(self.notes)

    def _close(self) -> None:
        self.position.done = True
        self._record()

    def _end_of(self, pod: dict) -> bytes:
        """Return the last lines of a log that exceeded the limit, with a remark about the gap."""
        options = {"container": self.container, "tail_lines": END_LINES}
        call = self.cluster.core.read_namespaced_pod_log
        response = self.cluster.raw(call, pod["metadata"]["name"], self.cluster.namespace, **options)
        end = b""
        for portion in portions(response):
            end = b"".join([end, *portion])[-(64 << 10) :]
        return f"\n[bytes left out here: a log is kept up to {self.limit} bytes]\n".encode() + end


class Skip:
    """A filter that strips the timestamp of each line and drops what was copied before: whole lines, and `part` of the
    last. It takes lines with their ends, long ones in pieces.
    """

    def __init__(self, position: Position):
        self.position = position
        self.until = (position.second, position.nano)
        self.left = position.same - bool(position.part)
        self.again = position.part
        self.in_line = False  # the piece before had no line end
        self.wanted = self.timed = False  # of that line: whether it is copied, and whether it has a timestamp
        self.removed = False  # the node no longer has the output

    def __call__(self, piece: bytes) -> bytes:
        ends, lead = piece.endswith(b"\n"), b""
        if not self.in_line:
            lead, piece = self._begin(piece)
        self.in_line = not ends
        if not self.wanted:
            return b""
        if self.timed:
            there = min(self.again, len(piece))
            self.again = 0 if ends else self.again - there
            piece = piece[there:]
            self.position.part = 0 if ends else self.position.part + len(piece)
        return lead + piece

    def _begin(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return (the missing end of the line before, if any; this line without its timestamp)."""
        position, lead = self.position, b""
        stamp = STAMP.match(piece)
        self.timed, self.wanted = bool(stamp), bool(stamp) or piece != b"\n"
        if not stamp:
            if REMOVED.match(piece):
                self.removed, self.wanted = True, False
            return lead, piece
        day, fraction, zone = stamp.groups()
        second = int(datetime.fromisoformat((day + zone).decode()).timestamp())
        moment = (second, int((fraction or b"0").ljust(9, b"0")))
        if moment < self.until:
            self.wanted = False
        elif moment == self.until and self.left:
            self.left -= 1
            self.wanted = False
        elif moment != self.until or not self.again:
            if position.part:
                lead, position.part, self.again = b"\n", 0, 0
            if moment != (position.second, position.nano):
                position.second, position.nano, position.same = *moment, 0
            position.same += 1
        return lead, piece[stamp.end() :]


def log_interruption(name: str, error: Exception) -> None:
    """Log that the stream of a log was interrupted, which is normal."""
    log.debug("the log stream of %s was interrupted, retrying: %s", name, error)


def remove(folder: Path, object_name: str) -> None:
    """Remove the records of a forgotten run's log."""
    for path in folder.glob(f"{object_name}.*"):  # no object name has a dot
        path.unlink(missing_ok=True)
