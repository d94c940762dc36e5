"""Servers that hang are told from those that are slow or dead."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from concurrent.futures import Future
from contextlib import closing, suppress

import pytest
import redis
from django.db import OperationalError, connection

from kernel import liveness, valkey
from kernel.postgres import connection as database
from kernel.postgres.connection import SERVER as DATABASE
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S

DAY_S = 86_400


@pytest.fixture(autouse=True)
def people_wait(monkeypatch):
    """Use the time limits of the parts that serve people."""
    monkeypatch.setenv("MLP_PART", "web")


@pytest.fixture
def listener():
    """A server that takes connections and says nothing until it is told to."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener
        with suppress(OSError):  # the test may have closed it
            listener.shutdown(socket.SHUT_RDWR)  # ends the threads that wait for connections


@pytest.fixture
def server(listener):
    address = listener.getsockname()
    return liveness.Server("silent", lambda: address, b"PING\r\n")


def answer(listener: socket.socket, times: int = 1) -> None:
    with suppress(OSError):
        for _ in range(times):
            link, _ = listener.accept()
            link.sendall(b"+PONG\r\n")
            link.close()


def test_a_silent_server_hangs_until_it_answers(server, listener):
    server.suspect()
    assert not server.hangs, "it has not been waited for"
    until(lambda: server.hangs)
    threading.Thread(target=answer, args=(listener, 5), daemon=True).start()
    until(lambda: not server.hangs)


def test_a_server_whose_queue_of_connections_is_full_hangs(tmp_path):
    with closing(socket.socket(socket.AF_UNIX)) as listener, closing(socket.socket(socket.AF_UNIX)) as waits:
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        waits.connect(str(tmp_path / "s"))
        server = liveness.Server("full", lambda: str(tmp_path / "s"), b"")
        server.suspect()
        until(lambda: server.hangs)
        waits.close()
        listener.close()
        until(lambda: not server.hangs)


def test_a_dead_server_does_not_hang(server, listener):
    listener.close()
    server.condemn()
    until(lambda: not server.hangs)


def test_a_result_is_waited_for_as_long_as_the_server_answers(server, listener):
    late: Future = Future()
    threading.Thread(target=answer, args=(listener, 5), daemon=True).start()
    threading.Timer(liveness.SILENCE_S + 0.5, late.set_result, ["done"]).start()
    assert server.result(late, LIMIT_S) == "done"


def test_a_result_is_not_waited_for_when_the_server_hangs(server):
    late: Future = Future()
    broken = threading.Timer(LIMIT_S, late.set_result, ["after all"])
    broken.start()
    with pytest.raises(TimeoutError):
        server.result(late, DAY_S)
    broken.cancel()
    assert server.hangs


@pytest.mark.django_db
def test_a_slow_query_is_waited_for():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s), 7", [2 * liveness.SILENCE_S + 0.3])
        assert cursor.fetchone()[1] == 7


@pytest.mark.django_db
def test_an_answer_that_comes_while_the_server_is_asked_is_taken(monkeypatch):
    """As on a busy machine, where asking takes longer than the query."""

    def asked(link) -> bool:
        assert select.select([link.pgconn.socket], [], [], LIMIT_S)[0]
        return True

    monkeypatch.setattr(database, "IDLE_S", 0.2)
    monkeypatch.setattr(database.Connection, "_is_idle", asked)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(1), 7")
        assert cursor.fetchone()[1] == 7


@pytest.mark.django_db(transaction=True)
def test_everything_fails_at_once_while_the_database_hangs(monkeypatch):
    def ask():
        with connection.cursor() as cursor:
            cursor.execute("SELECT 7")
            return cursor.fetchone()

    assert ask() == (7,)
    connection.close()
    with monkeypatch.context() as patch:
        patch.setattr(DATABASE, "hangs", True)
        with pytest.raises(OperationalError, match="does not answer"):
            ask()
    assert ask() == (7,)


@pytest.mark.django_db(transaction=True)
def test_a_process_of_the_database_that_hangs_does_not_hold_its_own_connection(monkeypatch):
    """That it does nothing is seen from another connection, long before the limit of a statement."""
    monkeypatch.setattr(database, "LONGEST_S", DAY_S)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
        os.kill(pid, signal.SIGSTOP)
        goes_on = threading.Timer(LIMIT_S, os.kill, [pid, signal.SIGCONT])  # a broken run gets its answer then
        goes_on.start()
        try:
            with pytest.raises(OperationalError, match="does not answer"):
                cursor.execute("SELECT 7")
        finally:
            goes_on.cancel()
            os.kill(pid, signal.SIGCONT)
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 7")


@pytest.mark.long
def test_valkey_is_not_asked_again_while_it_hangs(settings, listener, monkeypatch):
    host, port = listener.getsockname()
    settings.REDIS_URL = f"redis://{host}:{port}/0"
    monkeypatch.setattr(valkey, "SERVER", liveness.Server("valkey", lambda: (host, port), b"PING\r\n"))
    client = valkey.client()
    with pytest.raises(redis.ConnectionError):
        client.get("x")
    assert valkey.SERVER.hangs
    listener.settimeout(0)
    while True:  # take what has come so far out of the queue
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            break
    with pytest.raises(valkey.Hangs):
        client.get("x")
