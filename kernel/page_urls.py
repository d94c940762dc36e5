"""The addresses of pages that others may read, too."""

from __future__ import annotations

from django.urls import path


def shared(route: str, view, name: str) -> list:
    """Return the addresses of a page that others may read, too: the owner's own, and the one with the owner in it."""
    return [path(route, view, name=name), path(f"u/<seg:owner>/{route}", view, name=name)]
