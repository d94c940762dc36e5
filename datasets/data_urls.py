"""Addresses below /internal/data that only the gateway's nginx reaches (mlp/supervisor/data.conf.tmpl)."""

from __future__ import annotations

from django.urls import path

from . import webdav

urlpatterns = [
    path("may", webdav.may),
    path("store", webdav.store),
    path("verb", webdav.verb),
]
