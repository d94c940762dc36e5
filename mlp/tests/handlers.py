"""One chain of middleware for all clients of the tests.

Each of Django's test clients builds its own with its first request, which takes nearly as long as that request. The
chain keeps what its middleware read from the settings, so a test that overrides any gets clients with their own.
"""

from __future__ import annotations

from django.conf import UserSettingsHolder, settings
from django.core.handlers.base import BaseHandler
from django.test.client import ClientHandler

OVERRIDDEN_ALWAYS = {"PASSWORD_HASHERS"}  # by a fixture of every test; no middleware reads it
PARTS = ("_middleware_chain", "_view_middleware", "_template_response_middleware", "_exception_middleware")
_shared: dict[str, object] = {}


def _overridden() -> set[str]:
    """Return the names of the settings that are not as the process was started with."""
    names: set[str] = set()
    holder = settings._wrapped
    while isinstance(holder, UserSettingsHolder):
        names |= {name for name in holder.__dict__ if name.isupper()} | holder._deleted
        holder = holder.default_settings
    return names


def build() -> None:
    """Make the chain, before any test has changed what middleware asks for."""
    first = ClientHandler()
    BaseHandler.load_middleware(first)
    _shared.update({name: getattr(first, name) for name in PARTS})


def load_middleware(handler: ClientHandler, is_async: bool = False) -> None:
    """Replace ClientHandler.load_middleware."""
    if is_async or not _shared or _overridden() - OVERRIDDEN_ALWAYS:
        BaseHandler.load_middleware(handler, is_async)
        return
    for name, part in _shared.items():
        setattr(handler, name, part)
