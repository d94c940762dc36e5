"""Imports the NATS client without aiohttp, which it needs for websockets only and does without where it is missing.

aiohttp is installed for the client of Kubernetes. Loading it takes 80 modules and several MiB in each process, and the
platform reaches NATS by TCP (`NATS_URL`). What imports aiohttp later gets it.
"""

from __future__ import annotations

import sys


def _import_without(name: str) -> None:
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # its import raises ImportError
    try:
        import nats.aio.transport  # noqa: F401
    finally:
        if hidden:
            del sys.modules[name]


_import_without("aiohttp")
