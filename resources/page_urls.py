"""The addresses of the pages of the use of resources. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from . import pages as resources

urlpatterns = [
    path("usage", resources.usage, name="usage"),
]
