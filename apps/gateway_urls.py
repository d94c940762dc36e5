"""Addresses below /internal/apps that only the application gateway's nginx reaches.

`route` is asked for each request to an application, so the HTTP server answers it directly (kernel/dispatch.py), unless
the caller may be known by a session, which Django's middleware reads.
"""

from __future__ import annotations

from django.conf import settings
from django.urls import path

from kernel.dispatch import Direct, ViewApplication

from . import gateway_access

urlpatterns = [
    path("route", gateway_access.route),
    path("metric", gateway_access.metric),
    path("feedback", gateway_access.feedback),
    path("preflight", gateway_access.preflight),
    path("refusal", gateway_access.refusal),
]


def _without_session(environ: dict) -> bool:
    return bool(environ.get("HTTP_AUTHORIZATION")) or settings.SESSION_COOKIE_NAME not in environ.get("HTTP_COOKIE", "")


DIRECT = {"/internal/apps/route": Direct(ViewApplication(gateway_access.route), _without_session)}
