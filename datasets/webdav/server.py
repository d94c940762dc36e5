"""The process that takes uploads: `manage.py data`. nginx hands each spooled body's path to it, and nobody else can.

An event loop reads nginx's requests and takes all that wait at the same time together (batch.py); a few threads take
what is no plain case one by one (put.py). What gunicorn needs for a request is more than the work itself here.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import responses

from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse

from . import archive
from .batch import store_all
from .errors import HttpError
from .gate import answer_to, from_nginx, respond
from .put import store

log = logging.getLogger(__name__)

HEAD_LIMIT = 256 << 10
THREADS = 8
PATIENCE_S = 0.001
STORE, ARCHIVE, LIVE = "/internal/data/store", "/internal/data/archive/", "/healthz/live"


class Connection(asyncio.Protocol):
    """One of nginx's connections: requests without a body, one after the other."""

    def __init__(self, server: Server):
        self.server, self.buffer, self.transport = server, b"", None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head, self.buffer = self.buffer[:end], self.buffer[end + 4 :]
            self.server.take(self, head.decode("latin-1"))
        if len(self.buffer) > HEAD_LIMIT:
            self.transport.close()

    def send(self, response: HttpResponse) -> None:
        if self.transport.is_closing():
            return
        body = response.content
        lines = [f"HTTP/1.1 {response.status_code} {responses.get(response.status_code, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in response.items()]
        lines += [f"Content-Length: {len(body)}\r\n\r\n"]
        self.transport.write("\r\n".join(lines).encode("latin-1", "replace") + body)


class Server:
    """What waits, and the threads that work on what is no plain case."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiting: list[tuple[Connection, HttpRequest]] = []
        self.context = contextvars.copy_context()  # always the same, so it is always the same database connection
        self.busy = False
        self.archives = threading.BoundedSemaphore(archive.MOST)
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="store")

    def take(self, connection: Connection, head: str) -> None:
        request = parse(head)
        if request.path == LIVE:
            connection.send(HttpResponse("ok\n", content_type="text/plain"))
        elif not from_nginx(request) or not request.path.startswith((STORE, ARCHIVE)):
            connection.send(respond(HttpError(404, "no such address")))
        elif request.path.startswith(ARCHIVE):
            self._archive(connection, request.path.removeprefix(ARCHIVE))
        else:
            if not self.waiting:
                # A lone upload goes at once; where many come, a moment's patience takes twice as many at half the cost.
                self.loop.call_later(PATIENCE_S if self.busy else 0, self._take_all, context=self.context)
            self.waiting.append((connection, request))

    def _take_all(self) -> None:
        """Here and not in a thread: handing over costs more than the milliseconds that it takes."""
        some, self.waiting = self.waiting, []
        self.busy = len(some) > 1
        close_old_connections()
        try:
            answers = store_all([request for _, request in some])
        except Exception as problem:  # a bug; the next ones must not wait for ever
            answers = [answer_to(problem, STORE)] * len(some)
        for (connection, request), answer in zip(some, answers, strict=True):
            if answer is None:
                self.pool.submit(self._take_one, connection, request)
            else:
                connection.send(answer)

    def _archive(self, connection: Connection, path: str) -> None:
        """A thread of its own with the connection's socket: what asyncio would do goes through its buffers."""
        try:
            steps = archive.steps_of(path)
        except ValueError:
            return connection.send(respond(HttpError(404, "path: no such dataset")))
        if not self.archives.acquire(blocking=False):
            return connection.send(respond(HttpError(503, "too many archives are being made", Retry_After="10")))
        connection.transport.pause_reading()
        link = socket.socket(fileno=os.dup(connection.transport.get_extra_info("socket").fileno()))

        def work() -> None:
            try:
                archive.send(link, steps)
            except OSError as problem:
                log.info("the archive of %s broke off: %s", "/".join(steps), problem)
            finally:
                self.archives.release()
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
                link.close()
                self.loop.call_soon_threadsafe(connection.transport.close)

        threading.Thread(target=work, daemon=True, name="archive").start()

    def _take_one(self, connection: Connection, request: HttpRequest) -> None:
        close_old_connections()
        answer = store(request)  # guarded: it answers whatever happens
        self.loop.call_soon_threadsafe(connection.send, answer)


def parse(head: str) -> HttpRequest:
    """The request of nginx's own making."""
    first, *lines = head.split("\r\n")
    request = HttpRequest()
    request.method, _, rest = first.partition(" ")
    request.path = rest.partition(" ")[0]
    for line in lines:
        name, _, value = line.partition(":")
        request.META["HTTP_" + name.upper().replace("-", "_")] = value.strip()
    return request


async def serve(host: str, port: int, stop: asyncio.Event) -> None:
    """Serves until `stop` is set, then finishes what is under way."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # the loop's own thread blocks on purpose: see Server._take_all
    server = Server()
    listener = await server.loop.create_server(lambda: Connection(server), host, port, backlog=1024)
    await stop.wait()
    listener.close()
    await asyncio.to_thread(server.pool.shutdown)
    await asyncio.sleep(0)  # the last answers are on their way
