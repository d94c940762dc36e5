"""The relay of a run with its own network: accepts on the run's listeners and connects to the platform's endpoints.

A process of its own, forked by the shim (`Relay`), which starts it again when it ends; it ends with the shim. It holds
neither the run's lock nor privileges. Connections wait in the listener's queue while there are too many, one side is
read only when the other has taken everything (so a slow reader slows the writer, and memory stays flat), and the end of
one direction is passed on alone. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections import deque

import pace
import privileges
import proxy
import route

MAX = 256  # connections of one run
MAX_ENDPOINTS = 16
MAX_OPENING = 32  # of them, for one endpoint, not connected yet
OPEN_S = 10
CHUNK = 256 << 10
PACED = 64 << 10  # what is read at once of a connection with a budget, so that no debt is large
PAUSES_S = (0.05, 1, 5)  # before the relay is started again
PR_SET_PDEATHSIG = 1
ABORT = b"\1\0\0\0\0\0\0\0"  # struct linger: close at once, with a reset
ROUNDS = 16  # chunks of one connection before the others have their turn


class Relay:
    """The shim's side: receives the listeners and keeps a relay process for them."""

    def __init__(self, spec: dict):
        self.asked, self.owner = spec["network"], spec["owner"]
        self.user = self.asked["uid"]
        self.mine, guards = socket.socketpair()
        self.asked["link"] = guards.detach()  # the guard's, which the shim closes
        self.listeners: list[int] = []
        self.pid, self.ended, self.starts = 0, -1, 0
        self.due: float | None = None  # when to start again, on the monotonic clock
        self.poller = select.epoll()  # itself readable when `look` has something to do
        self.poller.register(self.mine.fileno(), select.EPOLLIN)
        self.route = route.Route(self.asked["route"], self.poller) if self.asked["route"] else None

    @property
    def pids(self) -> set[int]:
        """Return the processes beside the run's own."""
        return {self.pid, *(self.route.pids.values() if self.route else ())}

    def next_due(self) -> float | None:
        """Return when `look` has something to do without being woken."""
        return min((due for due in (self.due, self.route and self.route.due) if due is not None), default=None)

    def poll(self) -> None:
        """Take the listeners, or start the process again after its end."""
        for fd, _event in self.poller.poll(0):
            if self.route and self.route.poll(fd):
                continue
            self.poller.unregister(fd)
            if fd == self.ended:
                os.close(fd)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self.pid, 0)
                self.pid, self.ended = 0, -1
                self.due = time.monotonic() + PAUSES_S[min(self.starts, len(PAUSES_S)) - 1]
            else:
                self.take()
        if self.route:
            self.route.again()
        if self.due is not None and time.monotonic() >= self.due:
            self.start()

    def take(self) -> None:
        """Take what the guard sends of the run's network."""
        self.listeners = socket.recv_fds(self.mine, 1, MAX_ENDPOINTS)[1]
        if self.route and self.listeners:
            self.route.begin(self.listeners.pop(0), self.mine)
        else:
            self.mine.close()
        if self.listeners:
            self.start()

    def start(self) -> None:
        """Fork the process."""
        self.due, self.starts, shim = None, self.starts + 1, os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become(self.user, self.listeners, shim)
                Loop(self.listeners, self.asked["endpoints"], source_of(self.owner)).run()
            except BaseException as problem:
                print(f"relay: {problem!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(1)
        with contextlib.suppress(OSError):
            self.ended = os.pidfd_open(self.pid)
            self.poller.register(self.ended, select.EPOLLIN)


def source_of(owner: int | None) -> str:
    """Return the address of this machine from which the owner's runs connect to endpoints: limits by address tell
    owners apart.
    """
    number = (owner or 0) % (1 << 23)
    return f"127.{128 | number >> 16}.{number >> 8 & 255}.{number & 255}"


def become(uid: int | None, listeners: list[int], shim: int) -> None:
    """Drop what the relay does not need of the shim. Raises OSError."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    last = 2
    for fd in sorted(listeners):
        os.closerange(last + 1, fd)
        last = fd
    os.closerange(last + 1, 1 << 20)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(5)
    proxy.load()  # from files that the relay's user may not be able to read
    if uid is not None:
        privileges.become(uid)
    privileges.hide()
    privileges.no_new_privileges()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # last: a change of user resets it
    if os.getppid() != shim:
        os._exit(0)


class Way:
    """One direction of a connection. It is read only while nothing is left to be sent."""

    def __init__(self, source: socket.socket, sink: socket.socket, first: bytes = b"", budget: pace.Pace | None = None):
        self.source, self.sink, self.rest = source, sink, memoryview(first)
        self.meter = budget and pace.Meter(budget)
        self.ended = False  # the source has sent its end, which was passed to the sink

    def move(self, chunk: memoryview) -> None:
        """Send on what can be sent without waiting. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(ROUNDS):
                if self.ended or (self.pause_s() and not self.rest):
                    return
                if self.rest:
                    self.rest = self.rest[self.sink.send(self.rest) :]
                else:
                    self.read(chunk)

    def pause_s(self) -> float:
        """Return for how many seconds it is not to be read."""
        return self.meter.pace.wait_s() if self.meter else 0

    def read(self, chunk: memoryview) -> None:
        """Read once; keep only what the sink does not take now. Raises BlockingIOError where there is nothing."""
        size = self.source.recv_into(chunk[:PACED] if self.meter else chunk)
        if size and self.meter:
            self.meter.count(bytes(chunk[:size]))
        if not size:
            self.ended = True
            return self.sink.shutdown(socket.SHUT_WR)
        try:
            sent = self.sink.send(chunk[:size])
        except BlockingIOError:
            sent = 0
        self.rest = memoryview(bytes(chunk[sent:size]))


class Loop:
    """The relay process: one thread moves the bytes, short-lived ones open connections."""

    def __init__(self, listeners: list[int], endpoints: list[dict], source: str):
        self.poller = select.epoll()
        self.endpoints = {
            fd: (socket.socket(fileno=fd), endpoint) for fd, endpoint in zip(listeners, endpoints, strict=True)
        }
        self.opening = dict.fromkeys(self.endpoints, 0)
        self.heard: set[int] = set()  # endpoints on which connections are accepted now
        self.ways: dict[int, tuple[Way, Way]] = {}  # by socket: what is read from it, what is written to it
        self.waits: dict[int, int] = {}  # by socket: the events that are waited for
        self.paces = {
            fd: pace.Pace(*endpoint["rate"]) for fd, (_, endpoint) in self.endpoints.items() if endpoint.get("rate")
        }
        self.paused: dict[int, float] = {}  # by socket of a run: when it is read again, on the monotonic clock
        self.source = source
        self.opened: deque = deque()
        self.woken, self.wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.poller.register(self.woken, select.EPOLLIN)
        self.chunk = memoryview(bytearray(CHUNK))

    def run(self) -> None:
        """Serve for ever."""
        while True:
            self.hear()
            for fd, _event in self.poller.poll(self.wait_s()):
                if fd == self.woken:
                    os.read(self.woken, 4096)
                    self.take_opened()
                elif fd in self.endpoints:
                    self.accept(fd)
                elif fd in self.ways:
                    self.move(fd)
            now = time.monotonic()
            for fd in [fd for fd, due in self.paused.items() if due <= now]:
                self.move(fd)

    def wait_s(self) -> float | None:
        """Return the seconds until a paused connection is read again."""
        return max(0.0, min(self.paused.values()) - time.monotonic()) if self.paused else None

    def hear(self) -> None:
        """Wait for connections at each endpoint while there is room."""
        for fd, opening in self.opening.items():
            room = len(self.ways) // 2 + sum(self.opening.values()) < MAX and opening < MAX_OPENING
            if room and fd not in self.heard:
                self.poller.register(fd, select.EPOLLIN)
                self.heard.add(fd)
            elif not room and fd in self.heard:
                self.poller.unregister(fd)
                self.heard.discard(fd)

    def accept(self, fd: int) -> None:
        listener, endpoint = self.endpoints[fd]
        try:
            client = listener.accept()[0]
        except OSError:  # gone meanwhile, or no descriptor is left now
            return
        self.opening[fd] += 1
        try:
            threading.Thread(target=self.open, args=(fd, endpoint, client), daemon=True).start()
        except RuntimeError:  # no thread to be had now
            self.opening[fd] -= 1
            abort(client)

    def open(self, fd: int, endpoint: dict, client: socket.socket) -> None:
        """Open the other side of a connection, in a thread of its own."""
        server, first, answer = None, b"", b""
        try:
            client.settimeout(OPEN_S)
            if endpoint["host"]:
                server = connect(endpoint, self.source)
            else:
                server, first, answer = proxy.open_for(client, endpoint, OPEN_S)
        except (OSError, ValueError):
            server = None
        finally:
            self.opened.append((fd, client, server, first, answer))
            with contextlib.suppress(BlockingIOError):
                os.write(self.wake, b".")

    def take_opened(self) -> None:
        while self.opened:
            fd, client, server, first, answer = self.opened.popleft()
            self.opening[fd] -= 1
            if server is None:
                abort(client)
                continue
            for side in (client, server):
                side.setblocking(False)
                with contextlib.suppress(OSError):
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            there, back = Way(client, server, first, self.paces.get(fd)), Way(server, client, answer)
            self.ways[client.fileno()], self.ways[server.fileno()] = (there, back), (back, there)
            self.move(client.fileno())

    def move(self, fd: int) -> None:
        """Serve both directions of a connection, then wait for what either side can do next."""
        there, back = self.ways[fd]
        try:
            there.move(self.chunk)
            back.move(self.chunk)
        except OSError:
            return self.close(there, abort)
        if there.ended and back.ended:
            return self.close(there, socket.socket.close)
        for way, other in ((there, back), (back, there)):
            reads = 0 if way.rest or way.ended else select.EPOLLIN
            if way.meter and (pause := way.pause_s()) and reads:
                reads, self.paused[way.source.fileno()] = 0, time.monotonic() + pause
            elif way.meter:
                self.paused.pop(way.source.fileno(), None)
            self.wait(way.source.fileno(), reads | (select.EPOLLOUT if other.rest else 0))

    def wait(self, fd: int, events: int) -> None:
        """Wait for these events of a socket; for none also not for its hang-up, which would be reported for ever."""
        if events == self.waits.get(fd, 0):
            return
        if not events:
            self.poller.unregister(fd)
            del self.waits[fd]
            return
        change = self.poller.modify if fd in self.waits else self.poller.register
        change(fd, events)
        self.waits[fd] = events

    def close(self, way: Way, how) -> None:
        for side in (way.source, way.sink):
            self.paused.pop(side.fileno(), None)
            self.wait(side.fileno(), 0)
            del self.ways[side.fileno()]
            how(side)


def connect(endpoint: dict, source: str) -> socket.socket:
    """Return a connection to an endpoint of the platform. Raises OSError."""
    own = (source, 0) if endpoint["host"].startswith("127.") else None
    # As bytes: for a text Python would load a codec, from files that the relay's user may not be able to read.
    return socket.create_connection((endpoint["host"].encode(), endpoint["to"]), OPEN_S, source_address=own)


def abort(side: socket.socket) -> None:
    """Close with a reset, so that the other side does not take it for an orderly end."""
    with contextlib.suppress(OSError):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    side.close()
