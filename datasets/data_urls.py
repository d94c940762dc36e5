"""Addresses below /internal/data that only the gateway's nginx reaches (supervision/data.conf.tmpl).

The HTTP server answers them directly (kernel/dispatch.py); Django routes them too.
"""

from __future__ import annotations

from django.urls import path

from kernel.dispatch import Direct, ViewApplication

from .webdav import put, verbs

urlpatterns = [
    path("may", put.may),
    path("store", put.store),
    path("verb", verbs.verb),
]
DIRECT = {f"/internal/data/{one.pattern}": Direct(ViewApplication(one.callback)) for one in urlpatterns}
