"""Bounds the long responses that threads send: exports, archives, files that nginx does not send by itself.

A thread is busy until the reader has taken the last byte. nginx stores at most NGINX_KEEPS of a response for a slow
reader (supervision/gateway.conf.tmpl), so a short one is not counted. In a web process some threads are always left for
pages and REST, and one user does not take what is there for all.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .errors import FAULT, REFUSED, error_response
from .messages import Message, for_caller

NGINX_KEEPS = 16 << 20
OF_ALL = 5  # of the 8 threads of a web process (supervision/parts.py)
RETRY_AFTER_S = 10
BUSY = Message("too many downloads at the same time; try again later")


class Busy(NamedTuple):
    """Why there is no room for a stream: `own` are the reader's other ones."""

    own: bool

    def response(self, request: HttpRequest | None = None) -> HttpResponseBase:
        msg = BUSY
        if self.own:
            msg = Message(
                "too many at the same time: a user may have %(limit)s (%(setting)s)",
                limit=settings.DOWNLOADS_PER_USER,
                setting="MLP_DOWNLOADS_PER_USER",
            )
        response = error_response(REFUSED if self.own else FAULT, for_caller(msg, request.META if request else {}))
        response["Retry-After"] = str(RETRY_AFTER_S)
        return response


class Stream:
    """One stream. Given back once: by `end`, or when nothing refers to it any more."""

    def __init__(self, streams: Streams, key: Hashable):
        self._streams, self._key = streams, key

    def end(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.give_back(self._key)

    def __del__(self):
        self.end()


class Streams:
    """The streams of this process, counted by their readers."""

    def __init__(self, most: int):
        self.most = most
        self.running: Counter[Hashable] = Counter()
        self.lock = threading.RLock()  # a stream may be collected while one is taken

    def take(self, key: Hashable, of_one: int) -> Stream | Busy:
        with self.lock:
            if self.running[key] >= of_one:
                return Busy(own=True)
            if self.running.total() >= self.most:
                return Busy(own=False)
            self.running[key] += 1
        return Stream(self, key)

    def give_back(self, key: Hashable) -> None:
        with self.lock:
            self.running[key] -= 1
            if self.running[key] <= 0:
                del self.running[key]


STREAMS = Streams(OF_ALL)


def bounded(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Return the response, or a refusal where a web process sends too many long ones already."""
    if not response.streaming or request.method != "GET" or isinstance(request, ASGIRequest):
        return response
    if 0 < int(response.get("Content-Length") or 0) <= NGINX_KEEPS:
        return response
    # A user has as many in all of the two processes, to which requests come by chance.
    stream = STREAMS.take(_reader(request), max(1, settings.DOWNLOADS_PER_USER // 2))
    if isinstance(stream, Busy):
        response.close()
        return stream.response(request)
    response._resource_closers.append(stream.end)  # as of an open file: no cycle keeps a dropped response
    return response


def _reader(request: HttpRequest) -> Hashable:
    """Return the user, else the address, which nginx gives."""
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return user.pk
    return request.META.get("HTTP_X_REAL_IP") or request.META.get("REMOTE_ADDR", "")


class BoundStreams:
    """The middleware, around the view."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return bounded(request, self.get_response(request))
