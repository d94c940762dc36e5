"""Processes that must not run twice (ingest, reconcile): a PostgreSQL advisory lock on a connection of its own."""

from __future__ import annotations

import hashlib
import logging
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from django.db import connection

from .postgres import connection as postgres

log = logging.getLogger(__name__)

# Of the connection with a lock, in seconds: the server's end has the same, and frees the lock of a lost machine by it.
SILENCE = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 3}


class Held:
    """Proof of holding the lock; `check` raises when the connection, and with it the lock, was lost."""

    def __init__(self, link: psycopg.Connection):
        self.link = link

    def check(self) -> None:
        _check(self.link)

    def ask(self, statement: str) -> tuple:
        """Return the first row of a statement that is asked again and again: the server plans it once. Raises as
        `check` does.
        """
        return self.link.execute(statement, prepare=True).fetchone()


def _check(link: psycopg.Connection) -> None:
    """Raise psycopg.Error when the connection was lost. Asks the server only where something has come from it: the end
    of a session is reported, and keepalives end the connection to a lost machine.
    """
    if _has_news(link):
        link.execute("SELECT 1")


def _has_news(link: psycopg.Connection) -> bool:
    """Return whether something has come from the server. Raises psycopg.Error when the connection is closed here."""
    looked = select.poll()  # unlike select(), for descriptors of any number
    looked.register(link.pgconn.socket, select.POLLIN)
    return bool(looked.poll(0))


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"mlp.{name}".encode()).digest()[:8], signed=True)


def _connect() -> psycopg.Connection:
    """Return a connection that both ends give up within 20 s when the machine of the other is gone."""
    parameters = connection.get_connection_params()
    parameters = {key: parameters[key] for key in ("dbname", "user", "password", "host", "port") if key in parameters}
    link = postgres.connect(**parameters, **SILENCE, autocommit=True)
    for name, value in SILENCE.items():
        if name.startswith("keepalives_"):
            link.execute(f"SET tcp_{name} = {value}")
    return link


@contextmanager
def only_one(
    name: str, stopped: Callable[[], bool] = lambda: False, waits: Callable[[], object] = lambda: None
) -> Iterator[Held | None]:
    """Wait until this process is the only one of that name; yield None when `stopped` has become true before.

    The lock ends with the connection, hence with the process. `waits` is called twice a second meanwhile.
    """
    with _connect() as link:
        waiting = False
        while not link.execute("SELECT pg_try_advisory_lock(%s)", [_number(name)]).fetchone()[0]:
            if not waiting:
                log.info("another %s is running; waiting for it to end", name)
                waiting = True
            if stopped():
                yield None
                return
            waits()
            time.sleep(0.5)
        yield Held(link)


class Holder:
    """The same lock without waiting: `hold` tries, and returns whether this process holds it now.

    For services of which one replica is active. Losing the database loses the lock; the next `hold` tries again.
    """

    def __init__(self, name: str):
        self.name = name
        self.link: psycopg.Connection | None = None

    def hold(self) -> bool:
        try:
            if self.link is None:
                link = _connect()
                if not link.execute("SELECT pg_try_advisory_lock(%s)", [_number(self.name)]).fetchone()[0]:
                    link.close()
                    return False
                self.link = link
            _check(self.link)
        except psycopg.Error as problem:
            log.warning("%s: the lock is not available or was lost: %s", self.name, problem)
            self.release()
        return self.link is not None

    def is_undisturbed(self) -> bool:
        """Return whether this process holds the lock and the server has reported nothing since. Waits for nothing."""
        link = self.link  # another thread may release it meanwhile
        try:
            return link is not None and not _has_news(link)
        except psycopg.Error:
            return False

    def release(self) -> None:
        """Let another process hold the lock, from now on."""
        link, self.link = self.link, None
        if link is None:
            return
        with suppress(psycopg.Error):  # the server notices some time later that a connection was closed
            link.execute("SELECT pg_advisory_unlock(%s)", [_number(self.name)])
        link.close()
