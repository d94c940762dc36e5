"""One request to a webhook. Called by accounts.delivery and models_app.registry.webhooks.

Users choose the URL, so it must not reach internal services: its host name is resolved once, all of its addresses must
be public and not of this machine (unless MLP_WEBHOOK_PRIVATE is set), the connection goes to a resolved address, and
redirects are not followed.
"""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

from . import outbound
from .errors import Refused

LIMIT_S = 10.0  # of one request
LOOKUP_S = 3.0
WEB_PORTS = (80, 443)
LOWEST_PORT = 1024  # of others: those below belong to services of other kinds, such as mail
_lookups = ThreadPoolExecutor(4, "lookup")


class Target(NamedTuple):
    """Where a URL leads; `address` is the IP address to connect to."""

    scheme: str
    host: str
    port: int
    path: str
    address: str


def target(url: str, field: str = "webhook") -> Target:
    """Return where the URL leads. Raises Refused, which names the field, when no request may go there."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        raise Refused("must be a URL that begins with http:// or https://", field=field)
    plain = url.isascii() and url.isprintable() and not set(url) & set(' "<>\\^`{|}')
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or not plain:
        raise Refused("must be a URL that begins with http:// or https://", field=field)
    if port < LOWEST_PORT and port not in WEB_PORTS:
        raise Refused("the port must be 80, 443 or at least %(lowest)s", field=field, lowest=LOWEST_PORT)
    addresses = _resolve(host, port, field)
    if not settings.WEBHOOK_PRIVATE and not all(outbound.is_public(address) for address in addresses):
        raise Refused("must be a public address", field=field)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port, path, min(addresses))


def _resolve(host: str, port: int, field: str) -> set[str]:
    """Return the IP addresses of a host name. Raises Refused when it cannot be resolved within LOOKUP_S.

    A name server may be slow, and a lookup cannot be cancelled: so lookups have a small thread pool of their own.
    """
    lookup = _lookups.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        return {info[4][0] for info in lookup.result(LOOKUP_S)}
    except TimeoutError:
        lookup.cancel()
        raise Refused("the host name could not be resolved in time; try again later", field=field)
    except (OSError, UnicodeError):
        raise Refused("the host name cannot be resolved", field=field)


def post(url: str, body: bytes, headers: dict[str, str], *, most: int = 0, field: str = "webhook") -> tuple[int, bytes]:
    """Send JSON; return the status and at most `most` bytes of the answer. Raises Refused, or as outbound.exchange."""
    scheme, host, port, path, address = target(url, field)
    host_header = f"[{host}]" if ":" in host else host
    headers = headers | {
        "Host": host_header if port in WEB_PORTS else f"{host_header}:{port}",
        "Content-Type": "application/json",
        "User-Agent": "ml-platform",
    }
    return outbound.exchange(
        (address, port), "POST", path, body, headers, limit_s=LIMIT_S, most=most,
        tls_name=host if scheme == "https" else "",
    )  # fmt: skip
