"""The settings of parts that are started one by one (`manage.py part`), each on a machine or in a pod of its own: where
they listen, and where they find each other. docs/kubernetes.md explains them.
"""

from __future__ import annotations

import re
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from kernel.environment import Section

PARTS = Section("Parts on their own")


def address(name: str, what: str) -> tuple[str, int] | None:
    """Return the (host, port) of a setting, None where it is not given. Raises ImproperlyConfigured."""
    text = PARTS.text(name, shown="on this machine", help=what)
    if not text:
        return None
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([1-9]\d{0,4})", text)
    if not match or int(match[2]) > 65535:
        raise ImproperlyConfigured(f"{name} must be like host:port, not {text!r}")
    return match[1].strip("[]"), int(match[2])


def read() -> tuple[dict[str, tuple[str, int] | None], Path | None]:
    """Return the addresses by part, and the folder of this process alone."""
    where = {
        "web": address(
            "MLP_WEB_ADDRESS", "`host:port` of the part `web`: where it listens, and where the gateways find it"
        ),
        "websockets": address("MLP_WEBSOCKET_ADDRESS", "the same for the part `websockets`"),
        "data": address("MLP_DATA_ADDRESS", "the same for the part `data`"),
        "gateway": address("MLP_GATEWAY_ADDRESS", "`host:port` at which `/healthz` asks the gateway"),
        "app-gateway": address("MLP_APP_GATEWAY_ADDRESS", "the same for the application gateway"),
    }
    folder = PARTS.text(
        "MLP_INSTANCE_DIR",
        shown="`{root}/run`",
        help="a folder of this process alone, for what its replicas must not share: nginx's configuration, and signs "
        "of life for probes",
    )
    return where, Path(folder).resolve() if folder else None
