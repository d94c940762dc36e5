"""Small requests that arrive at the same time are stored together: one statement and one commit for all of them.

The request that comes first stores its lines at once. Those that come meanwhile wait for it and go together next, led
by the first of them: nobody waits for a timer, and the more requests there are the larger the groups become. Each is
answered after the commit of its own lines. What is stored is forwarded from a thread, many lines a message; a process
that ends before leaves that to the sweep (services/housekeeping.py). Used by the web server's quick endpoints, and by
the listener of small requests (web/log_listener.py), whose requests come in groups.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import close_old_connections, connection

from aiops.logstore.base import UNAVAILABLE
from kernel import bus
from kernel.errors import Fault

from . import accept, tail

log = logging.getLogger(__name__)

MAX = 256  # lines of a request that is stored together with others
MAX_AT_ONCE = 5000  # lines of a group
MAX_WAITING = 20_000  # lines that wait to be forwarded; the requests after them forward their own
CHECK_EVERY_S = 1.0  # the message bus, while its connection stands
LINGER_S = 0.05  # for more lines to forward together
IDLE_S = 5.0  # a connection to the database that was used since then is not checked


@dataclass(eq=False)
class _Call:
    lines: Sequence[dict]
    ready: threading.Event = field(default_factory=threading.Event)
    leads: bool = False  # it is this one's turn to store all that wait
    new: int = 0
    problem: Exception | None = field(default_factory=lambda: Fault(UNAVAILABLE))  # until the lines are stored


class Groups:
    """The requests of this process that are being stored."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[_Call] = deque()
        self.busy = False
        self.checked = float("-inf")
        self.used = threading.local()  # when each thread last used its connection to the database
        self.forwarder = Forwarder()

    def store(self, lines: Sequence[dict]) -> int:
        """Store lines and return how many were new. Raises Fault, with nothing acknowledged."""
        call = _Call(lines)
        with self.lock:
            self.waiting.append(call)
            call.leads, self.busy = not self.busy, True
        if not call.leads:
            call.ready.wait()
        if call.leads:
            self._lead()
        if call.problem is not None:
            raise call.problem
        return call.new

    def _lead(self) -> None:
        """Store what waits, the caller's own lines first, and pass the lead on."""
        with self.lock:
            group = _first_of(self.waiting)
        try:
            self.store_all(group)
        finally:
            with self.lock:
                following = self.waiting[0] if self.waiting else None
                self.busy = following is not None
            for call in group[1:]:
                call.ready.set()
            if following is not None:
                following.leads = True
                following.ready.set()

    def store_all(self, group: list[_Call]) -> None:
        """Store the lines of a group, and say of each call how many were new, or why none is stored."""
        try:
            self._try([line for call in group for line in call.lines], group)
        except Fault as problem:
            for call in group:
                call.problem = problem
        except Exception as problem:  # of one request's lines: the others must not fail with it
            if len(group) == 1:
                group[0].problem = problem
                return
            for call in group:
                self.store_all([call])

    def _try(self, lines: list[dict], group: list[_Call]) -> None:
        self._check()
        fresh = accept.append(lines)
        left = {line["_id"] for line in fresh}
        for call in group:
            ids = {line["_id"] for line in call.lines} & left
            call.new, call.problem = len(ids), None
            left -= ids
        self.forwarder.add(fresh)
        tail.send(fresh)

    def refresh(self) -> None:
        """Close this thread's connection to the database if it has broken while it was idle."""
        now = time.monotonic()
        idle = now - getattr(self.used, "at", float("-inf")) > IDLE_S
        if idle and not connection.in_atomic_block:  # a transaction of the caller's would lose its connection
            close_old_connections()
        self.used.at = now

    def _check(self) -> None:
        self.refresh()
        now = time.monotonic()
        if now - self.checked > CHECK_EVERY_S or not bus.is_connected():
            bus.check()
            self.checked = now


def _first_of(waiting: deque[_Call]) -> list[_Call]:
    """Remove from those that wait the first ones, of MAX_AT_ONCE lines at most unless one alone has more."""
    group, count = [], 0
    while waiting and (not group or count + len(waiting[0].lines) <= MAX_AT_ONCE):
        group.append(waiting.popleft())
        count += len(group[-1].lines)
    return group


class Forwarder:
    """A thread that forwards stored lines, as many at once as wait. It is started with the first ones."""

    def __init__(self) -> None:
        self.lines: deque[dict] = deque()
        self.some = threading.Event()
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def add(self, lines: list[dict]) -> None:
        if len(self.lines) > MAX_WAITING:
            accept.forward(lines)
            return
        self.lines.extend(lines)
        self.some.set()
        if self.thread is None:
            with self.lock:
                if self.thread is None:
                    self.thread = threading.Thread(target=self._run, name="log-forwarder", daemon=True)
                    self.thread.start()
                    atexit.register(self.flush)

    def _run(self) -> None:
        while True:
            self.some.wait()
            time.sleep(LINGER_S)
            self.some.clear()
            try:
                self.flush()
            except Exception:  # whatever it is, the next lines are forwarded, and these by the sweep
                log.exception("stored log lines could not be forwarded now")

    def flush(self) -> None:
        """Forward what waits. Lines that cannot be forwarded now are left to the sweep."""
        while self.lines:
            some = [self.lines.popleft() for _ in range(min(len(self.lines), MAX_AT_ONCE))]
            accept.forward(some)


_groups: Groups | None = None
_pid = 0
_making = threading.Lock()


def store(lines: Sequence[dict]) -> int:
    """Store lines and return how many were new; small requests together. Raises Fault, with nothing acknowledged."""
    if not lines:
        return 0
    return accept.store(lines) if len(lines) > MAX else groups().store(lines)


def store_each(requests: Sequence[Sequence[dict]]) -> list[int | Exception]:
    """Store the lines of requests that have arrived together. Return for each how many lines were new, or the exception
    for which nothing of it is acknowledged.
    """
    calls = [_Call(lines) for lines in requests]
    waiting = deque(call for call in calls if call.lines)
    while waiting:
        groups().store_all(_first_of(waiting))
    for call in calls:
        if not call.lines:
            call.problem = None
    return [call.new if call.problem is None else call.problem for call in calls]


def groups() -> Groups:
    """Return those of this process: threads and locks do not survive a fork."""
    global _groups, _pid
    with _making:
        if _groups is None or _pid != os.getpid():
            _groups, _pid = Groups(), os.getpid()
        return _groups
