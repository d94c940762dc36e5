"""What killed servers leave on the disk. Cleared while none of them runs: before the start, and after the end."""

from __future__ import annotations

from datasets.webdav import spool

from .control import clear_sockets


def clear() -> None:
    """Remove sockets, and uploads that nobody receives any more."""
    clear_sockets()
    spool.clear_all()
