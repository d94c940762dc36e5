"""HTTP/1.1 between nginx and processes of ours that answer without gunicorn, on an event loop each.

Only nginx talks to these listeners, with small bodies, so there is neither TLS nor a body in chunks. Requests are
parsed by httptools, the parser that uvicorn uses, without uvicorn around it, which makes a task for each request.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import responses
from typing import Protocol

import httptools
from django.http import HttpResponse

from .sockets import BACKLOG, Address

log = logging.getLogger(__name__)

LIMIT = 256 << 10  # bytes of a request
# What runs in the process `data` beside the data service, each on a thread of its own: by its name the dotted name of
# the function that starts it, which takes the address to listen at, None for that of the settings.
beside: dict[str, str] = {}


class Taker(Protocol):
    """What answers requests."""

    def take(self, connection: Connection, path: str, meta: dict[str, str]) -> None:
        """Answer the request on the connection's transport, now or later. `meta` are its headers with names as WSGI has
        them.
        """


class Connection(asyncio.Protocol):
    """One of nginx's connections: requests with small bodies, one after the other. The callbacks are httptools'."""

    def __init__(self, server: Taker):
        self.server, self.transport = server, None
        self.parser = httptools.HttpRequestParser(self)
        # nginx passes on what callers send in headers, also what the parser refuses. It would take the whole listener
        # for dead (max_fails) when a connection is closed for it.
        self.parser.set_dangerous_leniencies(lenient_headers=True, lenient_keep_alive=True)
        self.url, self.meta, self.body, self.unread, self.begun = b"", {}, b"", 0, 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.unread += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as problem:
            log.error("a request of nginx was not understood", exc_info=problem)
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

    def write(self, answer: bytes) -> None:
        """Write a whole answer, unless nginx has closed the connection."""
        if not self.transport.is_closing():
            self.transport.write(answer)


def written(response: HttpResponse) -> bytes:
    """Return the whole answer as it is sent."""
    body = response.content
    lines = [f"HTTP/1.1 {response.status_code} {responses.get(response.status_code, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in response.items()]
    if response.status_code != HTTPStatus.NO_CONTENT:  # which must have no length (RFC 9110, 8.6)
        lines += [f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


@functools.lru_cache(256)
def _meta_name(name: bytes) -> str:
    """Return the header's name as WSGI has it: `X-Data-Uri` is `HTTP_X_DATA_URI`."""
    return "HTTP_" + name.decode("latin-1").upper().replace("-", "_")


async def listen(server: Taker, address: Address, connection: type[Connection] = Connection) -> asyncio.Server:
    """Open a port or a unix socket, and hand the requests there to the server. Raises OSError."""
    loop, factory = asyncio.get_running_loop(), functools.partial(connection, server)
    if isinstance(address, tuple):
        return await loop.create_server(factory, *address, backlog=BACKLOG)
    return await loop.create_unix_server(factory, address, backlog=BACKLOG)


def begin(make: Callable[[], Taker], address: Address, name: str) -> None:
    """Serve on a thread until the process ends, by what `make` returns there."""
    threading.Thread(target=_run, args=[make, address, name], name=name, daemon=True).start()


def _run(make: Callable[[], Taker], address: Address, name: str) -> None:
    try:
        asyncio.run(_serve(make, address))
    except Exception:  # nginx then asks the web processes, which costs time only
        log.exception("nobody answers for %s at %s", name, address)


async def _serve(make: Callable[[], Taker], address: Address) -> None:
    await listen(make(), address)
    await asyncio.Event().wait()
