"""Addresses below /internal/workspaces that only the workspaces' gateway reaches. `route` is asked for each request, so
the HTTP server answers it directly (kernel/dispatch.py).
"""

from __future__ import annotations

from django.urls import path

from kernel.dispatch import Direct, ViewApplication

from . import gateway

urlpatterns = [
    path("route", gateway.route),
    path("refusal", gateway.refusal),
    path("enter", gateway.enter),
]
DIRECT = {"/internal/workspaces/route": Direct(ViewApplication(gateway.route))}
