"""What killed servers leave on the disk. Cleared while none of them runs: before the start, and after the end."""

from __future__ import annotations

from datasets.webdav import spool
from kernel.telemetry import files, meters

from .control import clear_sockets


def clear() -> None:
    """Remove sockets, uploads that nobody receives any more, and what the processes have counted."""
    clear_sockets()
    spool.clear_all()
    files.clear(meters.FOLDER)
