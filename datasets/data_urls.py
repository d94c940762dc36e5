"""Addresses below /internal/data that only the gateway's nginx reaches (supervision/data.conf.tmpl).

They are routed twice: by Django as any other, and by `FastData`, a WSGI wrapper named in mlp/wsgi.py that answers them
before the middleware, which would cost as much as the views themselves.
"""

from __future__ import annotations

from http.client import responses

from django.core.handlers.wsgi import WSGIRequest
from django.core.signals import request_finished, request_started
from django.urls import path

from .webdav import put, verbs

urlpatterns = [
    path("may", put.may),
    path("store", put.store),
    path("verb", verbs.verb),
]
VIEWS = {
    "/internal/data/may": put.may,
    "/internal/data/store": put.store,
    "/internal/data/verb": verbs.verb,
}


class FastData:
    """WSGI: the views of the data service directly, everything else through `application`."""

    views = VIEWS

    def __init__(self, application):
        self.application = application

    def view(self, environ):
        return self.views.get(environ["PATH_INFO"])

    def __call__(self, environ, start_response):
        view = self.view(environ)
        if view is None:
            return self.application(environ, start_response)
        request_started.send(sender=type(self), environ=environ)  # drops connections to the database that broke
        response = view(WSGIRequest(environ))
        if not response.streaming:
            response["Content-Length"] = str(len(response.content))
        status = f"{response.status_code} {responses.get(response.status_code, 'Unknown')}"
        start_response(status, [(name, str(value)) for name, value in response.items()])
        if response.streaming:
            response._handler_class = type(self)
            return response  # the server calls close(), which sends request_finished
        request_finished.send(sender=type(self))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.content]
