"""The process that stores uploads: `manage.py data`. Only nginx talks to it, and hands it each spooled body's
path, or a small body itself.

One event loop reads nginx's requests and stores those that wait at the same time together (put/batch.py); a few threads
store one by one what is not the plain case (put/store.py). A dataset's archive is sent by a thread of its own.

Requests are parsed by httptools (kernel/inner_http.py), without uvicorn. Measured with bench/data.py's small files
(4 KiB, 32 connections, six runs in turns on two busy cores): 1,066 files/s and 165 µs of this process's CPU for each
here; 861 files/s and 244 µs as an ASGI application on uvicorn. An archive of 512 MiB leaves by sendfile with 0.17 s of
CPU; an ASGI application cannot reach the socket and needs 0.30 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from django.db import close_old_connections
from django.http import HttpResponse

from kernel import inner_http
from kernel.sockets import Address
from kernel.streams import Busy, Streams
from kernel.telemetry import meters

from . import archive
from .errors import HttpError
from .gate import error_response, for_page, has_internal_key, respond
from .put.batch import CREATED, REPLACED, Request, store_all
from .put.store import store
from .put.upload import Upload

log = logging.getLogger(__name__)

THREADS = 8
PATIENCE_S = 0.001
MOST = 64  # uploads that are stored together: their bodies are in memory
STORE, LIVE = "/internal/data/store", "/healthz/live"
ARCHIVE, ZIP = "/internal/data/archive/", "/internal/data/zip/"  # then who reads it, and what


class Connection(inner_http.Connection):
    """A connection on which answers are Django's."""

    def send(self, response: HttpResponse) -> None:
        """Write a whole answer, unless nginx has closed the connection."""
        if self.url.startswith(STORE.encode()):
            meters.request("POST", STORE, response.status_code, time.perf_counter() - self.begun)
        self.write(STORED.get(response) or inner_http.written(response))


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


STORED = {response: inner_http.written(response) for response in (CREATED, REPLACED)}


async def serve(address: Address, stop: asyncio.Event) -> None:
    """Serve at a port or a unix socket until `stop` is set, then finish the requests that were accepted."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # the loop's own thread blocks on purpose: see Server._store_waiting
    server = Server()
    listener = await inner_http.listen(server, address, Connection)
    await stop.wait()
    listener.close()
    await asyncio.to_thread(server.pool.shutdown)
    await asyncio.sleep(0)  # lets the loop write the last answers
