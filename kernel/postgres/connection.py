"""Connections to PostgreSQL that fail when the server hangs (kernel.liveness), also in the middle of a query.

Time limits of the server's own, such as statement_timeout, are of no use while it is stopped, and tcp_user_timeout
knows nothing of unix sockets. psycopg looks up from each wait ten times a second, and then the server is looked at.
"""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from typing import NoReturn

import psycopg
from django.conf import settings
from psycopg.waiting import READY_R

from kernel import liveness, sockets

DEFAULT_PORT = 5432
SSL_REQUEST = bytes([0, 0, 0, 8, 4, 210, 22, 47])  # answered by one byte, before any log-in
CONNECT_S = 2, 5  # where people wait, and elsewhere
# The server answers, but perhaps not its process for this connection: after IDLE_S of silence another connection asks
# what that one does, and again each time. LONGEST_S is longer than any statement may take (statement_timeout).
IDLE_S = 3.0
LONGEST_S = 150.0
IS_IDLE = """
SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state LIKE 'idle%%' AND clock_timestamp() - state_change > '2 s'
"""
HANGS = "the database does not answer"


def _address() -> sockets.Address | None:
    """Return where the server listens; None where libpq's own defaults decide."""
    values = settings.DATABASES["default"]
    host, port = values["HOST"], int(values["PORT"] or DEFAULT_PORT)
    if not host:
        return None
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


SERVER = liveness.Server("database", _address, SSL_REQUEST)


class Connection(psycopg.Connection):
    """A connection whose calls raise OperationalError when the server hangs; it is closed then."""

    given: tuple[str, dict]  # what it was made with

    @classmethod
    def connect(cls, conninfo: str = "", **options) -> Connection:
        """Return a new connection. Raises OperationalError."""
        if SERVER.hangs:
            raise psycopg.OperationalError(HANGS)
        options["connect_timeout"] = min(int(liveness.limit_s(*CONNECT_S)), options.get("connect_timeout", 60))
        try:
            link = super().connect(conninfo, **options)
        except psycopg.errors.ConnectionTimeout:
            SERVER.condemn()
            raise
        link.given = conninfo, options
        return link

    def wait(self, gen: Generator, *arguments, **options):
        try:
            wanted = next(gen)
        except StopIteration as end:  # nothing to wait for, as around each of Django's transactions
            return end.value
        return super().wait(self._watched(gen, wanted), *arguments, **options)

    def _watched(self, gen: Generator, wanted: object) -> Generator:
        """Yield what psycopg's own generator does, `wanted` first, and look at the server while nothing comes."""
        heard = asked = looked = time.monotonic()
        try:
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready and ready & READY_R:
                    heard = asked = looked = SERVER.heard = now
                elif SERVER.hangs or now - heard > LONGEST_S:
                    self._give_up()
                elif now - looked > IDLE_S:
                    if self._is_idle() and not self._has_answer():
                        self._give_up()
                    looked = time.monotonic()
                elif now - asked > liveness.SILENCE_S:
                    asked = now
                    SERVER.suspect()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _has_answer(self) -> bool:
        """Return whether an answer has come, as it may have while another connection asked: that takes long on a busy
        machine.
        """
        looked = select.poll()  # unlike select(), for descriptors of any number
        looked.register(self.pgconn.socket, select.POLLIN)
        return bool(looked.poll(0))

    def _give_up(self) -> NoReturn:
        self.pgconn.finish()  # in the middle of a query: of no more use
        raise psycopg.OperationalError(HANGS)

    def _is_idle(self) -> bool:
        """Return whether the server's process for this connection does nothing, though we wait for its answer."""
        conninfo, options = self.given
        try:
            with psycopg.connect(conninfo, **options | {"autocommit": True}) as other:
                return other.execute(IS_IDLE, [self.pgconn.backend_pid]).fetchone() is not None
        except psycopg.Error:
            return False


connect = Connection.connect
