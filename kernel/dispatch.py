"""The router in front of Django: addresses that the HTTP server answers without Django's middleware.

The middleware would cost more than these answers themselves. Each is also an ordinary address of Django's URLs, for
those who run the ASGI server alone. Used by mlp.wsgi.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from http.client import responses
from typing import NamedTuple

from django.core.handlers.wsgi import WSGIRequest
from django.core.signals import request_finished, request_started
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from .errors import FAULT, describe, error_response
from .streams import bounded
from .telemetry import meters

log = logging.getLogger(__name__)

Application = Callable[[dict, Callable], Iterable[bytes]]  # of WSGI


def _always(_environ: dict) -> bool:
    return True


class Direct(NamedTuple):
    """An application for one address, for the requests that `applies` picks; the others go to Django."""

    application: Application
    applies: Callable[[dict], bool] = _always


NO_DIRECT: Mapping[str, Direct] = {}


class Dispatcher:
    """The WSGI application: direct addresses by their whole path, or by its last segment, all else by Django's
    application.
    """

    def __init__(self, application: Application, direct: Mapping[str, Direct], last: Mapping[str, Direct] = NO_DIRECT):
        self.application, self.direct, self.last = application, direct, last

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        direct = self.direct.get(path) or self.last.get(path[path.rfind("/") + 1 :])
        if direct is None or not direct.applies(environ):
            return self.application(environ, start_response)
        return meters.counted(direct.application, environ, start_response)


class ViewApplication:
    """A Django view as a WSGI application, without middleware. What the view raises is answered with 503."""

    def __init__(self, view: Callable[[HttpRequest], HttpResponseBase]):
        self.view = view

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        request_started.send(sender=type(self), environ=environ)  # closes database connections that broke
        response = self._answer(WSGIRequest(environ))
        if not response.streaming:
            response.setdefault("Content-Length", str(len(response.content)))  # HEAD has that of the file
        status = f"{response.status_code} {responses.get(response.status_code, 'Unknown')}"
        start_response(status, [(name, str(value)) for name, value in response.items()])
        if response.streaming:
            response._handler_class = type(self)
            return response  # the server calls close(), which sends request_finished
        request_finished.send(sender=type(self))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.content]

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        try:
            return bounded(request, self.view(request))
        except Exception as problem:  # whatever it is, a server's 500 would say nothing
            return unavailable(request, problem)


def unavailable(request: HttpRequest, problem: Exception) -> HttpResponse:
    """Return the answer to a request of nginx that failed: 503, when to try again, and what failed as `{"msg"}`."""
    log.error("fault in %s %s", request.method, request.path, exc_info=problem)
    response = error_response(FAULT, describe(problem)[1])
    response["Retry-After"] = "2"
    return response
