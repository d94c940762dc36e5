"""The listener for small requests with log lines: those that have arrived together are stored by one commit.

It runs on threads of the process `data`, at `LOGS_ADDRESS`: one reads requests and writes answers, another one reads
their lines and stores them, all that have arrived meanwhile at a time. Of these each token is looked up once, and each
user's quota asked for once. A request costs a web process several times as much, most of it for the turn of a thread
and for statements of its own. Each is answered after the commit of its own lines.

What is not the usual request is sent on to a web process by nginx, as it came, and answered there
(supervision/gateway.conf.tmpl), which nginx also does with all of them while nobody listens here.
"""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest

from accounts import tokens
from aiops.intake import grouping, quota, shippers
from kernel.database import reachable
from kernel.inner_http import Connection, begin, written
from kernel.sockets import Address
from kernel.telemetry import meters

from . import quick_logs

log = logging.getLogger(__name__)

LINES, OTLP, LOKI = "/api/v1/aiops/logs", "/v1/logs", "/loki/api/v1/push"
PUSHED = {OTLP: shippers.otlp, LOKI: shippers.loki_push}
AT_ONCE = 256  # requests that are stored together
Stored = int | Exception  # how many lines of a request were new, or why none is stored
Answer = tuple[int, bytes]  # the status, and all that is sent


class Request(NamedTuple):
    """A request of nginx; `meta` are its headers with names as WSGI has them."""

    connection: Connection
    path: str
    meta: dict[str, str]
    body: bytes


class Taken(NamedTuple):
    """The lines of a request that are to be stored, and what answers it then."""

    lines: Sequence[dict]
    answer: Callable[[Stored], Answer]


class Round(shippers.Intake):
    """What is known of the senders of requests that have arrived together, and what these have sent."""

    most = grouping.MAX

    def __init__(self) -> None:
        self.holders: dict[tuple[str, str], tokens.Holder | None] = {}
        self.admitted: dict[str, int | quota.TooMany] = {}  # as `require` returns it, or why the user has to wait
        self.sent: dict[str, tuple[tokens.Holder, list[dict]]] = {}
        self.lines: list[dict] = []  # of the request that is being read

    def holder_of(self, environ: dict) -> tokens.Holder | None:
        """Return the holder of the token of a request by REST."""
        key = LINES, environ.get("HTTP_AUTHORIZATION", "")
        if key not in self.holders:
            self.holders[key] = quick_logs.holder_of(environ)
        return self.holders[key]

    def user(self, token: str) -> tokens.Holder | None:
        key = OTLP, token
        if key not in self.holders:
            with reachable():
                self.holders[key] = tokens.user_holder(token)
        return self.holders[key]

    def require(self, user: tokens.Holder) -> None:
        if user.username not in self.admitted:
            try:
                self.admitted[user.username] = quota.require(user)
            except quota.TooMany as problem:
                self.admitted[user.username] = problem
        if isinstance(self.admitted[user.username], quota.TooMany):
            raise self.admitted[user.username]

    def store(self, user: tokens.Holder, lines: list[dict]) -> None:
        self.lines = shippers.with_text(lines)
        self.count(user, lines)

    def count(self, user: tokens.Holder, lines: list[dict]) -> None:
        self.sent.setdefault(user.username, (user, []))[1].extend(lines)


def answers(requests: Sequence[Request]) -> list[Answer]:
    """Store the lines of requests that have arrived together, and return what each is answered."""
    grouping.groups().refresh()
    group = Round()
    taken = [_read(request, group) for request in requests]
    for name, (user, lines) in group.sent.items():
        quota.count(user, lines, group.admitted[name])
    stored = grouping.store_each([each.lines for each in taken])
    return [each.answer(outcome) for each, outcome in zip(taken, stored, strict=True)]


def _read(request: Request, group: Round) -> Taken:
    try:
        taken = _pushed(request, group) if request.path in PUSHED else _usual(request, group)
    except Exception:  # of one request: the others must not fail with it
        log.exception("a request with log lines is left to the web server")
        taken = None
    return taken or Taken((), lambda _stored: _sent_on(request.path))


def _environ(request: Request) -> dict:
    """Return the request as WSGI has it."""
    return {
        **request.meta,
        "REQUEST_METHOD": "POST",
        "PATH_INFO": request.path,
        "CONTENT_TYPE": request.meta.get("HTTP_CONTENT_TYPE", ""),
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.input": io.BytesIO(request.body),
    }


def _usual(request: Request, group: Round) -> Taken | None:
    """Return the lines of a request by REST; None unless it is a usual one."""
    environ = _environ(request)
    found = quick_logs.usual_lines(environ, group.holder_of, group.require) if request.path == LINES else None
    if found is None or len(found[1]) > grouping.MAX:
        return None
    holder, lines = found
    group.count(holder, lines)

    def answer(stored: Stored) -> Answer:
        status, headers, data = quick_logs.response(environ, len(lines), stored)
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return int(status[:3]), f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + data

    return Taken(lines, answer)


def _pushed(request: Request, group: Round) -> Taken | None:
    """Return the lines that a shipper has pushed; None where they are too many."""
    group.lines = []
    try:
        response = PUSHED[request.path](WSGIRequest(_environ(request)), group)
    except shippers.Larger:
        return None

    def answer(stored: Stored) -> Answer:
        given = shippers.fault(stored) if isinstance(stored, Exception) else response
        return given.status_code, written(given)

    return Taken(group.lines, answer)


def _sent_on(path: str) -> Answer:
    """Return what nginx sends the request on for. Status 0: the web process counts the request."""
    place = "@other_pushed" if path in PUSHED else "@other_lines"
    return 0, f"HTTP/1.1 200 OK\r\nX-Accel-Redirect: {place}\r\nContent-Length: 0\r\n\r\n".encode()


class Listener:
    """The requests that wait, and the thread that stores them."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiting: list[Request] = []
        self.busy = False
        self.storing = ThreadPoolExecutor(1, thread_name_prefix="log-lines")

    def take(self, connection: Connection, path: str, meta: dict[str, str]) -> None:
        """Keep a request until the thread has stored those before it, and the loop has read what else has arrived."""
        self.waiting.append(Request(connection, path, meta, connection.body))
        if not self.busy:
            self.busy = True
            self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        requests, self.waiting = self.waiting[:AT_ONCE], self.waiting[AT_ONCE:]
        self.storing.submit(self._answer, requests)

    def _answer(self, requests: list[Request]) -> None:
        try:
            given = answers(requests)
        except BaseException as problem:  # whatever it is, those after them must still be answered
            fault = shippers.fault(problem)
            given = [(fault.status_code, written(fault))] * len(requests)
        self.loop.call_soon_threadsafe(self._send, requests, given)

    def _send(self, requests: list[Request], given: list[Answer]) -> None:
        self.busy = bool(self.waiting)
        if self.waiting:
            self._begin()
        for (connection, path, _meta, _body), (status, text) in zip(requests, given, strict=True):
            if status:
                meters.request("POST", path, status, time.perf_counter() - connection.begun)
            connection.write(text)


def start(address: Address | None) -> None:
    """Serve on a thread until the process ends; None is the settings' address."""
    begin(Listener, address or settings.LOGS_ADDRESS, "log lines")
