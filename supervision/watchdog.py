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
from collections.abc import Callable

from . import launch
from .part import Part

STOPPED_S = 5.0
LOOK_AROUND_EVERY_S = 10.0  # for processes that parts have begun
ASK_EVERY_S = 5.0
SILENT_S = 15.0  # longer than a busy machine delays an answer
STOPPED = b"T"  # and not "t", by a debugger


class Watchdog:
    """What was found to hang, and since when."""

    def __init__(self, parts: list[Part]):
        self.parts = [part for part in parts if part.stage != "servers"]
        self.since: dict[tuple[str, int], float] = {}  # part and process (0: the part as a whole) > first seen so
        self.silent: dict[tuple[str, int], Part] = {}  # those that did not answer the last question
        self.next_question = self.next_look = 0.0
        self.processes: dict[int, tuple[Part, int]] = {}  # by pid: whose it is, and an open pidfd

    def poll(self, say: Callable[[str], None]) -> None:
        """Kill what has hung for too long, and say what it was."""
        now = time.monotonic()
        if now >= self.next_look:
            self.look_around()
        stopped = {(part.name, pid): pidfd for pid, (part, pidfd) in self.processes.items() if _is_stopped(pid, pidfd)}
        if now >= self.next_question:
            self.next_question = now + ASK_EVERY_S
            self.silent = {(part.name, 0): part for part in self.parts if part.lively and _is_silent(part)}
        self.since = {key: self.since.get(key, now) for key in (*stopped, *self.silent)}
        for (name, pid), pidfd in stopped.items():
            if now - self.since[name, pid] >= STOPPED_S:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                say(f"{name}: process {pid} was stopped for {STOPPED_S:g} s and has been ended")
        for key, part in self.silent.items():
            if now - self.since[key] >= SILENT_S and launch.send(part.folder, signal.SIGKILL):
                self.since[key] = now
                say(f"{part.name} did not answer for {SILENT_S:g} s and has been ended")

    def look_around(self) -> None:
        """List the processes of all parts, of which each poll looks at the state only. Called after one has ended, too:
        its successor is to be looked at.
        """
        self.next_look = time.monotonic() + LOOK_AROUND_EVERY_S
        by_folder = {part.folder: part for part in self.parts}
        for _part, pidfd in self.processes.values():
            os.close(pidfd)
        self.processes = {}
        for folder, pidfd in launch.leftovers(*by_folder):
            if (pid := launch.pid_of(pidfd)) > 0:
                self.processes[pid] = by_folder[folder], pidfd
            else:
                os.close(pidfd)


def _is_stopped(pid: int, pidfd: int) -> bool:
    """Return whether the process is stopped; one that has ended, whose number another one may have, is not."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # a file object costs three times as much
        try:
            state = os.read(descriptor, 512).rpartition(b")")[2].split(maxsplit=1)[0]
        finally:
            os.close(descriptor)
    except (OSError, IndexError):
        return False
    return state == STOPPED and launch.pid_of(pidfd) == pid


def _is_silent(part: Part) -> bool:
    """Return whether nothing comes within the limit. A part that refuses is being started."""
    try:
        part.ready()
    except Exception as problem:
        return isinstance(problem.__cause__, TimeoutError)
    return False
