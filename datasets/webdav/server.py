"""The process that stores uploads: `manage.py data`. Only nginx talks to it, and hands it each spooled body's
path, or a small body itself.

One event loop reads nginx's requests and stores those that wait at the same time together (put/batch.py); a few threads
store one by one what is not the plain case (put/store.py). A dataset's archive is sent by a thread of its own.

Requests are parsed by httptools, the parser that uvicorn uses, without uvicorn around it. Measured with bench/data.py's
small files (4 KiB, 32 connections, six runs in turns on two busy cores): 1,066 files/s and 165 µs of this process's CPU
for each here; 861 files/s and 244 µs as an ASGI application on uvicorn, which makes a task for each request. An archive
of 512 MiB leaves by sendfile with 0.17 s of CPU; an ASGI application cannot reach the socket and needs 0.30 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import responses
from typing import Protocol

import httptools
from django.conf import settings
from django.db import close_old_connections
from django.http import HttpResponse

from kernel.sockets import BACKLOG, Address
from kernel.streams import Busy, Streams
from kernel.telemetry import meters

from . import archive
from .errors import HttpError
from .gate import error_response, for_page, has_internal_key, respond
from .put.batch import CREATED, REPLACED, Request, store_all
from .put.store import store
from .put.upload import Upload

log = logging.getLogger(__name__)

LIMIT = 256 << 10  # bytes of a request
THREADS = 8
PATIENCE_S = 0.001
MOST = 64  # uploads that are stored together: their bodies are in memory
STORE, LIVE = "/internal/data/store", "/healthz/live"
ARCHIVE, ZIP = "/internal/data/archive/", "/internal/data/zip/"  # then who reads it, and what


class Taker(Protocol):
    """What answers requests."""

    def take(self, connection: Connection, path: str, meta: dict[str, str]) -> None:
        """Answer the request by the connection's `send`, now or later."""


class Connection(asyncio.Protocol):
    """One of nginx's connections: requests with small bodies, one after the other. The callbacks are httptools'."""

    def __init__(self, server: Taker):
        self.server, self.transport = server, None
        self.parser = httptools.HttpRequestParser(self)
        self.url, self.meta, self.body, self.unread, self.begun = b"", {}, b"", 0, 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.unread += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as problem:
            log.error("data service: a request was not understood", exc_info=problem)
            self.transport.close()
        if self.unread > LIMIT:
            self.transport.close()

    def on_message_begin(self) -> None:
        self.url, self.meta, self.body = b"", {}, b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.meta[_meta_name(name)] = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.unread, self.begun = 0, time.perf_counter()
        self.server.take(self, self.url.decode("latin-1"), self.meta)
        self.body = b""  # not kept while the connection is idle

    def send(self, response: HttpResponse) -> None:
        """Write a whole answer, unless nginx has closed the connection."""
        if self.url.startswith(STORE.encode()):
            meters.request("POST", STORE, response.status_code, time.perf_counter() - self.begun)
        if not self.transport.is_closing():
            self.transport.write(STORED.get(response) or _written(response))


class Server:
    """The requests that wait, and the threads for those that are stored one by one."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiting: list[tuple[Connection, Request]] = []
        self.context = contextvars.copy_context()  # always the same one, so it is always the same database connection
        self.busy = False
        self.archives = Streams(archive.LIMIT)
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="store")

    def take(self, connection: Connection, path: str, meta: dict[str, str]) -> None:
        """Answer the request, or queue it; `meta` are its headers with names as WSGI has them."""
        if path == LIVE:
            connection.send(HttpResponse("ok\n", content_type="text/plain"))
        elif not has_internal_key(meta) or not path.startswith((STORE, ARCHIVE, ZIP)):
            connection.send(respond(HttpError(404, "no such address")))
        elif path.startswith(ARCHIVE):
            self._archive(connection, path.removeprefix(ARCHIVE), archive.send)
        elif path.startswith(ZIP):
            self._archive(connection, path.removeprefix(ZIP), archive.send_zip)
        else:
            if not self.waiting:
                # A lone upload is stored at once. Where many come, a short wait takes twice as many at half the cost.
                self.loop.call_later(PATIENCE_S if self.busy else 0, self._store_waiting, context=self.context)
            self.waiting.append((connection, Request(meta, connection.body)))
            if len(self.waiting) == MOST:
                self.context.run(self._store_waiting)

    def _store_waiting(self) -> None:
        """Store what waits, on the loop's own thread: handing it to another costs more than the work itself."""
        requests, self.waiting = self.waiting, []
        if not requests:
            return
        self.busy = len(requests) > 1
        close_old_connections()
        try:
            results = store_all([request for _, request in requests])
        except Exception as problem:  # a bug: the requests after these must still be served
            results = [error_response(problem, STORE)] * len(requests)
        for (connection, (meta, _body)), result in zip(requests, results, strict=True):
            if isinstance(result, Upload):
                self.pool.submit(self._store_alone, connection, meta, result)
            else:
                connection.send(for_page(result, meta))

    def _store_alone(self, connection: Connection, meta: dict[str, str], upload: Upload) -> None:
        close_old_connections()
        try:
            response = store(upload)
        except Exception as problem:
            response = error_response(problem, STORE)
        self.loop.call_soon_threadsafe(connection.send, for_page(response, meta))

    def _archive(self, connection: Connection, path: str, send: Callable) -> None:
        """Start a thread that writes to the connection's socket itself: asyncio would copy the bytes to its buffers."""
        try:
            reader, _, path = path.partition("/")
            reader, steps = int(reader), archive.steps_of(path)
        except ValueError:
            return connection.send(respond(HttpError(404, "no such dataset", field="path")))
        stream = self.archives.take(reader, settings.DOWNLOADS_PER_USER)
        if isinstance(stream, Busy):
            return connection.send(stream.response())
        connection.transport.pause_reading()
        link = socket.socket(fileno=os.dup(connection.transport.get_extra_info("socket").fileno()))

        def work() -> None:
            try:
                send(link, steps)
            except (OSError, ValueError, RuntimeError) as problem:  # the last two: a file has grown past zip's limit
                log.info("sending the archive of %s was interrupted: %s", "/".join(steps), problem)
            finally:
                stream.end()
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
                link.close()
                self.loop.call_soon_threadsafe(connection.transport.close)

        threading.Thread(target=work, daemon=True, name="archive").start()


def _written(response: HttpResponse) -> bytes:
    """Return the whole answer as it is sent."""
    body = response.content
    lines = [f"HTTP/1.1 {response.status_code} {responses.get(response.status_code, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in response.items()]
    lines += [f"Content-Length: {len(body)}\r\n\r\n"]
    return "\r\n".join(lines).encode("latin-1", "replace") + body


STORED = {response: _written(response) for response in (CREATED, REPLACED)}


@functools.lru_cache(256)
def _meta_name(name: bytes) -> str:
    """Return the header's name as WSGI has it: `X-Data-Uri` is `HTTP_X_DATA_URI`."""
    return "HTTP_" + name.decode("latin-1").upper().replace("-", "_")


async def listen(server: Taker, address: Address) -> asyncio.Server:
    """Open a port or a unix socket, and hand the requests there to the server. Raises OSError."""
    loop, factory = asyncio.get_running_loop(), functools.partial(Connection, server)
    if isinstance(address, tuple):
        return await loop.create_server(factory, *address, backlog=BACKLOG)
    return await loop.create_unix_server(factory, address, backlog=BACKLOG)


async def serve(address: Address, stop: asyncio.Event) -> None:
    """Serve at a port or a unix socket until `stop` is set, then finish the requests that were accepted."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # the loop's own thread blocks on purpose: see Server._store_waiting
    server = Server()
    listener = await listen(server, address)
    await stop.wait()
    listener.close()
    await asyncio.to_thread(server.pool.shutdown)
    await asyncio.sleep(0)  # lets the loop write the last answers
