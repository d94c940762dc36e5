"""Addresses below /internal/apps that only the application gateway's nginx reaches.

`route` is asked for each request to an application, so it is routed twice: by Django as any other, and by `FastApps`, a
WSGI wrapper named in mlp/wsgi.py that answers it before the middleware, which would cost more than the view.
"""

from __future__ import annotations

from django.conf import settings
from django.urls import path

from datasets.data_urls import FastData

from . import gateway_access

urlpatterns = [
    path("route", gateway_access.route),
    path("told", gateway_access.told),
]


class FastApps(FastData):
    """WSGI: the gateway's question directly, unless the answer may lie in a session; all else through `application`."""

    views = {"/internal/apps/route": gateway_access.route}

    def view(self, environ):
        by_session = settings.SESSION_COOKIE_NAME in environ.get("HTTP_COOKIE", "")
        return None if by_session and not environ.get("HTTP_AUTHORIZATION") else super().view(environ)
