"""Helpers for tests of row locks: a call in a thread with its own connection, and who waits for our locks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from django.db import connection, transaction

from kernel.tests.nats_tools import until


def in_thread(call: Callable) -> Future:
    """Start the call in a thread; its database connection is closed when it ends."""
    future: Future = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as problem:
            future.set_exception(problem)
        finally:
            connection.close()

    threading.Thread(target=run, daemon=True).start()
    return future


def waiting_for_us() -> list[str]:
    """Return the statements that wait for a lock of this thread's transaction."""
    return _waiting() and _waiting()  # who waits is read after the statements: those of the first look may be older


def _waiting() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT query FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        return [query for (query,) in cursor.fetchall()]


def blocked(count: int) -> list[str]:
    """Return the statements that wait for us, once there are `count` of them."""
    return until(lambda: len(waiting_for_us()) == count and waiting_for_us(), 60, lambda: str(waiting_for_us()))


def within_a_transaction(call: Callable[[], object]) -> None:
    """Call the function inside another transaction, as some callers do."""
    with transaction.atomic():
        call()
