"""The listener that answers the application gateway's nginx before each request to an application.

It runs on a thread of the process `data`, with an event loop of its own, at `ROUTE_ADDRESS`. What gateway_access.route
answers in a web process costs more than many models need for a prediction: the thread pool of gunicorn alone takes
three times as long as this listener for the whole. Callers who may be known by a session are sent to the web processes
by nginx, which also asks them while nobody listens here.

Valkey is asked for each token and the database once a second for each application, both on the loop's own thread, as
each takes less time than to hand it to another. While one of them hangs, no application can be called either way.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass

from django.conf import settings
from django.db import close_old_connections

from datasets.webdav.gate import has_internal_key
from kernel.dispatch import unavailable
from kernel.inner_http import Connection, begin
from kernel.sockets import Address
from kernel.telemetry import meters

from . import gateway_access, places, upstreams
from .balancing import Balancer
from .gateway_access import Verdict
from .lifecycle import PLACE_REMEMBERED_S
from .places import Place, Target

log = logging.getLogger(__name__)

ROUTE = "/internal/apps/route"
# All that an answer depends on: a session is not read here.
JUDGED = (
    *("HTTP_X_INTERNAL_KEY", "HTTP_X_APP_USER", "HTTP_X_APP_NAME"),
    *("HTTP_AUTHORIZATION", "HTTP_X_API_KEY", "HTTP_X_GATEWAY_KEY", "HTTP_X_REAL_IP"),
    *("HTTP_ORIGIN", "HTTP_X_APP_LENGTH", gateway_access.FAILED, gateway_access.HELD),
)
# Applications that are called again and again are looked up before that is due, so that no request waits for it.
RENEW_S = 0.6 * PLACE_REMEMBERED_S
CALLED_S = 10.0  # since the last request, while it is done
MOST_RENEWED = 20  # applications, those called last
UNKNOWN = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@dataclass
class Asked:
    """A request as gateway_access reads it, with the names that WSGI gives headers."""

    META: dict[str, str]
    method: str = "GET"
    path: str = ROUTE


class Held:
    """A request of nginx to an application with several replicas: it is answered once one is chosen."""

    def __init__(self, connection: Connection, meta: dict[str, str], verdict: Verdict):
        self.connection, self.meta, self.waits = connection, meta, bool(meta.get(gateway_access.HELD))
        self.verdict, self.draw = verdict, verdict.place.draw(meta)
        self.user, self.name = meta["HTTP_X_APP_USER"], meta["HTTP_X_APP_NAME"]
        self.failed = meta.get(gateway_access.FAILED, "")

    def is_gone(self) -> bool:
        return self.connection.transport.is_closing()

    def hold(self) -> None:
        """Let nginx ask again, and wait for the answer."""
        self._end(403, "403 Forbidden", {"X-App-Hold": "1", "Content-Length": "0"})

    def admit(self, place: Place, target: Target) -> None:
        self._end(204, "204 No Content", headers_of(self.verdict, place, target, self.meta))

    def refuse(self, place: Place | None, wait_s: int) -> None:
        if not self.failed:
            gateway_access.give_back(self.verdict)
        verdict = Verdict(place, wait_s=wait_s)
        self._end(403, "403 Forbidden", gateway_access.headers_of_refusal(verdict, self.meta) | {"Content-Length": "0"})

    def _end(self, status: int, words: str, headers: dict[str, str]) -> None:
        meters.request("GET", ROUTE, status, time.perf_counter() - self.connection.begun)
        if not self.is_gone():
            self.connection.transport.write(_head(words, headers))


class Listener:
    """What httptools' callbacks hand whole requests to. Of those that arrive together, equal ones are judged once."""

    def __init__(self) -> None:
        self.balancer = Balancer()
        self.waiting: list[tuple[Connection, str, dict[str, str]]] = []
        self.called: OrderedDict[tuple[str, str], float] = OrderedDict()  # the last request to an application
        self.renewing = False

    def take(self, connection: Connection, path: str, meta: dict[str, str]) -> None:
        """Keep a request of nginx until the loop has read what else has arrived."""
        if not self.waiting:
            asyncio.get_running_loop().call_soon(self._answer_waiting)
        self.waiting.append((connection, path, meta))

    def _answer_waiting(self) -> None:
        requests, self.waiting = self.waiting, []
        alike: dict[tuple[str | None, ...], list[tuple[Connection, str, dict[str, str]]]] = {}
        for request in requests:
            _connection, path, meta = request
            alike.setdefault((path, *(meta.get(name) for name in JUDGED)), []).append(request)
        for group in alike.values():
            answered = answers(*group[0][1:], times=len(group))
            for (connection, _path, meta), answer in zip(group, answered, strict=True):
                if isinstance(answer, Verdict):
                    self.balancer.send(answer.place, Held(connection, meta, answer))
                    continue
                status, text = answer
                meters.request("GET", ROUTE, status, time.perf_counter() - connection.begun)
                if not connection.transport.is_closing():
                    connection.transport.write(text)
            self._note_call(group[0][2])

    def _note_call(self, meta: dict[str, str]) -> None:
        key = meta.get("HTTP_X_APP_USER", ""), meta.get("HTTP_X_APP_NAME", "")
        if not places.is_known(*key):
            return
        self.called[key] = time.monotonic()
        self.called.move_to_end(key)
        if len(self.called) > MOST_RENEWED:
            self.called.popitem(last=False)
        if not self.renewing:
            self.renewing = True
            asyncio.get_running_loop().call_later(RENEW_S, self._renew)

    def _renew(self) -> None:
        """Read one application again, of those called lately in turn, and each of them once in RENEW_S."""
        now = time.monotonic()
        self.called = OrderedDict((key, at) for key, at in self.called.items() if now - at < CALLED_S)
        self.renewing = bool(self.called)
        if not self.called:
            return
        asyncio.get_running_loop().call_later(RENEW_S / len(self.called), self._renew)
        try:
            close_old_connections()
            places.renew_oldest(self.called)
        except Exception as problem:  # the next request says what is wrong
            log.debug("an application was not looked up again: %s", problem)


def answers(path: str, meta: dict[str, str], times: int = 1) -> list[tuple[int, bytes] | Verdict]:
    """Return the status and the whole response to each of `times` requests like this one that have arrived together:
    204 with where the application is, 403, or 503 after a fault. In place of 204 it is the verdict for an application
    that has several replicas, one of which is to be chosen.
    """
    if path != ROUTE or not has_internal_key(meta):
        return [(404, UNKNOWN)] * times
    asked = Asked(meta)
    try:
        close_old_connections()
        verdict = gateway_access.allowed(asked, times)
    except Exception as problem:
        body = unavailable(asked, problem).content
        head = f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: {len(body)}\r\n\r\n"
        return [(503, head.encode() + body)] * times
    place = verdict.place
    refused = (403, _head("403 Forbidden", {**gateway_access.headers_of_refusal(verdict, meta), "Content-Length": "0"}))
    if place is None:
        return [refused] * times
    if place.balanced:
        admitted = verdict
    else:
        admitted = (204, _head("204 No Content", headers_of(verdict, place, place.targets[0], meta)))
    return [admitted] * verdict.admitted + [refused] * (times - verdict.admitted)


def headers_of(verdict: Verdict, place: Place, target: Target, meta: dict[str, str]) -> dict[str, str]:
    """Return what nginx needs to know to send a request to a run, with the upstream of that."""
    headers = gateway_access.headers_of(verdict, place, target, meta)
    via = _upstreams().of(target.address)
    return {**headers, upstreams.HEADER: via} if via else headers


@functools.cache
def _upstreams() -> upstreams.Upstreams:
    return upstreams.here()


def _head(status: str, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def start(address: Address | None) -> None:
    """Serve on a thread until the process ends; None is the settings' address."""
    begin(Listener, address or settings.ROUTE_ADDRESS, "routes")
