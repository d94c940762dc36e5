"""What must not run twice (ingest, reconcile): a PostgreSQL advisory lock, held by a connection of its own."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection

log = logging.getLogger(__name__)


class Held:
    """Proof of holding the lock; `check` raises when the connection, and with it the lock, was lost."""

    def __init__(self, link: psycopg.Connection):
        self.link = link

    def check(self) -> None:
        self.link.execute("SELECT 1")


@contextmanager
def only_one(name: str) -> Iterator[Held]:
    """Waits until this process is the only one of that name. The lock ends with the connection, hence with us."""
    number = int.from_bytes(hashlib.sha256(f"mlp.{name}".encode()).digest()[:8], signed=True)
    parameters = connection.get_connection_params()
    parameters = {key: parameters[key] for key in ("dbname", "user", "password", "host", "port") if key in parameters}
    with psycopg.connect(**parameters, autocommit=True, connect_timeout=5) as link:
        waiting = False
        while not link.execute("SELECT pg_try_advisory_lock(%s)", [number]).fetchone()[0]:
            if not waiting:
                log.info("another %s is running; waiting for it to end", name)
                waiting = True
            time.sleep(0.5)
        yield Held(link)
