"""Proving that a backup can be restored: it is, to a scratch root with servers of its own, and compared.

What is compared: every file's checksum, the number and checksum of each table's rows, the streams, and whether the
books of resources add up. The platform may run meanwhile; nothing of it is read.
"""

from __future__ import annotations

import os
import random
import socket
from contextlib import closing
from pathlib import Path

from .layout import DUMP
from .places import BackupError
from .repository import Head, Repository
from .restoring import refuse_newer, scratch_root, write_root
from .taking import Say
from .writing import compare

ELSEWHERE = ("DATABASE_URL", "REDIS_URL", "NATS_URL", "NKEY_SEED_FILENAME")  # servers that are not the scratch root's
NOT_HERE = ("MLP_TLS_", "MLP_URL", "MLP_APP_URL", "MLP_HOST", "MLP_RUNNER", "MLP_INNER_PORTS")
MAX_SHOWN = 20


def verify(repository: Repository, head: Head, parent: Path | None, say: Say) -> dict:
    """Restore a backup to a new folder below `parent` and compare; return the report. Raises BackupError."""
    refuse_newer(head)
    with scratch_root(parent) as root:
        environment = {
            key: value for key, value in os.environ.items() if key not in ELSEWHERE and not key.startswith(NOT_HERE)
        }
        environment["MLP_PORT_BASE"] = str(_free_base())
        report = write_root(repository, head, root, environment, say, checks_only=True)
        say("comparing files")
        lines = (line for line in repository.lines(head) if not line.startswith(f'"{Path(DUMP).parent}/'.encode()))
        differences = [*compare(root, lines), *report["books"]]
    if differences:
        shown = "\n".join(f"  {difference}" for difference in differences[:MAX_SHOWN])
        more = f"\n  and {len(differences) - MAX_SHOWN} more" if len(differences) > MAX_SHOWN else ""
        raise BackupError(f"the backup {head.name} does not restore to what it was made of:\n{shown}{more}")
    return report


def _free_base() -> int:
    """Return an MLP_PORT_BASE whose port for NATS is free; the other servers have sockets."""
    for _ in range(100):
        base = random.randrange(20000, 32000, 20)
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", base + 10)):
                return base
    raise BackupError("no port is free for the message bus of the scratch root")
