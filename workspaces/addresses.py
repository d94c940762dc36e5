"""Where workspaces are: the origin of their gateway, and the way back to the platform's pages.

`*` in MLP_WORKSPACE_URL stands for the user: then each user's workspaces have an origin of their own. Without the
setting it is another port of the platform's host.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings

from kernel import pages

from .models import Workspace

ANY = "*"


def origin(request, username: str) -> str:
    """Return the origin of the user's workspaces, for who has sent the request to the platform."""
    if settings.WORKSPACE_URL:
        return settings.WORKSPACE_URL.replace(ANY, username)
    return _beside(pages.address(request), settings.WORKSPACE_PORT)


def address_of(request, workspace: Workspace) -> str:
    """Return the address at which the owner's browser opens the workspace."""
    return f"{origin(request, workspace.user.username)}/{workspace.user.username}/{workspace.name}/lab"


def platform(request) -> str:
    """Return the address of the platform's pages, for who has sent the request to the workspaces' gateway."""
    if settings.GATEWAY_URL_GIVEN or settings.WORKSPACE_URL:
        return settings.GATEWAY_URL
    return _beside(f"{request.scheme}://{request.get_host()}", settings.GATEWAY_PORT)


def is_right_host(host: str, username: str) -> bool:
    """Return whether a request for the user's workspace was sent to the origin that is theirs alone, if they have
    one.
    """
    if ANY not in settings.WORKSPACE_URL:
        return True
    return host == urlsplit(settings.WORKSPACE_URL.replace(ANY, username)).netloc


def _beside(address: str, port: int) -> str:
    parts = urlsplit(address)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"
