"""Connections to PostgreSQL that fail when the server hangs (kernel.answering), also in the middle of a query.

Time limits of the server's own, such as statement_timeout, are of no use while it is stopped, and tcp_user_timeout
knows nothing of unix sockets. psycopg looks up from each wait ten times a second, and then the server is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Generator

import psycopg
from django.conf import settings
from psycopg.waiting import READY_R

from kernel import answering, sockets

DEFAULT_PORT = 5432
SSL_REQUEST = bytes([0, 0, 0, 8, 4, 210, 22, 47])  # answered by one byte, before any log-in
CONNECT_S = 2, 5  # where people wait, and elsewhere
# Longer than any statement may take (statement_timeout): this connection's own process at the server is stopped.
LONGEST_S = 150.0
HANGS = "the database does not answer"


def _address() -> sockets.Address | None:
    """Return where the server listens; None where libpq's own defaults decide."""
    values = settings.DATABASES["default"]
    host, port = values["HOST"], int(values["PORT"] or DEFAULT_PORT)
    if not host:
        return None
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


SERVER = answering.Server("database", _address, SSL_REQUEST)


class Connection(psycopg.Connection):
    """A connection whose calls raise OperationalError when the server hangs; it is closed then."""

    @classmethod
    def connect(cls, conninfo: str = "", **options) -> Connection:
        """Return a new connection. Raises OperationalError."""
        if SERVER.hangs:
            raise psycopg.OperationalError(HANGS)
        options["connect_timeout"] = min(int(answering.limit_s(*CONNECT_S)), options.get("connect_timeout", 60))
        try:
            return super().connect(conninfo, **options)
        except psycopg.errors.ConnectionTimeout:
            SERVER.condemn()
            raise

    def wait(self, gen: Generator, *arguments, **options):
        return super().wait(self._watched(gen), *arguments, **options)

    def _watched(self, gen: Generator) -> Generator:
        """Yield what psycopg's own generator does, and look at the server while nothing comes."""
        heard = asked = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready and ready & READY_R:
                    heard = asked = SERVER.heard = now
                elif SERVER.hangs or now - heard > LONGEST_S:
                    self.pgconn.finish()  # in the middle of a query: of no more use
                    raise psycopg.OperationalError(HANGS)
                elif now - asked > answering.SILENCE_S:
                    asked = now
                    SERVER.suspect()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


connect = Connection.connect
