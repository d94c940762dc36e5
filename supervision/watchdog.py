"""Ends what hangs, so that supervisord starts it again: a process of ours that is stopped (by SIGSTOP), and a part that
must answer at once and does not. Called by `up` while it watches (run.py).

PostgreSQL, Valkey and NATS are left alone: what they have to do before they go on is theirs to know. A web worker whose
main loop stands still is replaced by gunicorn.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import launch
from .part import Part

STOPPED_S = 5.0
ASK_EVERY_S = 5.0
SILENT_S = 15.0  # longer than a busy machine delays an answer
STOPPED = "T"  # and not "t", by a debugger


class Watchdog:
    """What was found to hang, and since when."""

    def __init__(self, parts: list[Part]):
        self.parts = [part for part in parts if part.stage != "servers"]
        self.since: dict[tuple[str, int], float] = {}  # part and process (0: the part as a whole) > first seen so
        self.silent: dict[tuple[str, int], Part] = {}  # those that did not answer the last question
        self.next_question = 0.0

    def poll(self, say: Callable[[str], None]) -> None:
        """Kill what has hung for too long, and say what it was."""
        now = time.monotonic()
        stopped = {(part.name, pid): pidfd for part, pid, pidfd in self._stopped()}
        if now >= self.next_question:
            self.next_question = now + ASK_EVERY_S
            self.silent = {(part.name, 0): part for part in self.parts if part.lively and _is_silent(part)}
        self.since = {key: self.since.get(key, now) for key in (*stopped, *self.silent)}
        for (name, pid), pidfd in stopped.items():
            if now - self.since[name, pid] >= STOPPED_S:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                say(f"{name}: process {pid} was stopped for {STOPPED_S:g} s and has been ended")
            os.close(pidfd)
        for key, part in self.silent.items():
            if now - self.since[key] >= SILENT_S and launch.send(part.folder, signal.SIGKILL):
                self.since[key] = now
                say(f"{part.name} did not answer for {SILENT_S:g} s and has been ended")

    def _stopped(self) -> Iterator[tuple[Part, int, int]]:
        """Return the stopped processes, each with its part and an open pidfd."""
        by_folder = {part.folder: part for part in self.parts}
        for folder, pidfd in launch.leftovers(*by_folder):
            pid, state = _pid_and_state(pidfd)
            if state == STOPPED:
                yield by_folder[folder], pid, pidfd
            else:
                os.close(pidfd)


def _pid_and_state(pidfd: int) -> tuple[int, str]:
    """Return the process's id and its state as the kernel writes it, "" when it has ended."""
    info = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    pid = int(info.split("Pid:")[1].split()[0])
    try:
        return pid, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return pid, ""


def _is_silent(part: Part) -> bool:
    """Return whether nothing comes within the limit. A part that refuses is being started."""
    try:
        part.ready()
    except Exception as problem:
        return isinstance(problem.__cause__, TimeoutError)
    return False
