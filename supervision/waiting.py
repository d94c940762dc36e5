"""How `up` waits: for a signal, for the end of a process, for a time. Until then it does nothing at all."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable


class Waiting:
    """What is waited for beside the time."""

    def __init__(self):
        self.poll = select.poll()
        self.woken, self.waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.poll.register(self.woken, select.POLLIN)
        self.pidfds: dict[int, int] = {}  # by process

    def wake(self) -> None:
        """End this wait, or the next one, and those that follow. May be called by a signal handler."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.waker, b".")

    def follow(self, pids: Iterable[int]) -> None:
        """Wait for the ends of these processes and no others. One that is gone already is left out."""
        wanted = set(pids)
        for pid in self.pidfds.keys() - wanted:
            self._leave(pid)
        for pid in wanted - self.pidfds.keys():
            with contextlib.suppress(ProcessLookupError):
                self.pidfds[pid] = os.pidfd_open(pid)
                self.poll.register(self.pidfds[pid], select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait, at most so long; return whether a process has ended, which is reported once."""
        ready = {descriptor for descriptor, _ in self.poll.poll(max(0.0, 1000 * seconds))}
        ended = [pid for pid, pidfd in self.pidfds.items() if pidfd in ready]
        for pid in ended:
            self._leave(pid)
        return bool(ended)

    def _leave(self, pid: int) -> None:
        pidfd = self.pidfds.pop(pid)
        self.poll.unregister(pidfd)
        os.close(pidfd)
