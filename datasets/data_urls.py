"""Addresses below /internal/data that only the gateway's nginx reaches (supervision/data.conf.tmpl).

The HTTP server answers them directly (kernel/dispatch.py); Django routes them too. `store` is answered by the process
that stores uploads (webdav/server.py).
"""

from __future__ import annotations

from django.urls import path

from kernel.dispatch import Direct, ViewApplication

from .webdav.put.admit import admit
from .webdav.verbs import verb

urlpatterns = [
    path("may", admit),
    path("verb", verb),
]
DIRECT = {
    f"/internal/data/{urlpattern.pattern}": Direct(ViewApplication(urlpattern.callback)) for urlpattern in urlpatterns
}
