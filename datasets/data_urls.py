"""Addresses that only the gateway's nginx reaches (mlp/supervisor/data.conf.tmpl): the data service."""

from __future__ import annotations

from django.urls import path

from . import webdav

urlpatterns = [
    path("internal/data/may", webdav.may),
    path("internal/data/store", webdav.store),
    path("internal/data/verb", webdav.verb),
]
