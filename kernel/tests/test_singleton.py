"""The singleton lock: held in the database, lost with its connection, checked at each use."""

from __future__ import annotations

import threading

import psycopg
import pytest
from django.db import connection

from kernel.singleton import SILENCE, Holder, only_one
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import HOST

pytestmark = pytest.mark.django_db(transaction=True)


def cut(link: psycopg.Connection) -> None:
    """End a connection's session at the server, as a restart of the database does; return once its locks are gone."""
    pid = link.info.backend_pid
    with connection.cursor() as cursor:

        def gone() -> bool:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE pid = %s", [pid])
            return cursor.fetchone()[0] == 0

        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        until(gone)


@pytest.fixture
def holders(request):
    """Two holders of one lock, which no other test has."""
    pair = Holder(request.node.name), Holder(request.node.name)
    yield pair
    for holder in pair:
        holder.release()


class TestHolder:
    def test_one_holder_has_the_lock_and_the_other_does_not(self, holders):
        first, second = holders
        assert [first.hold(), first.hold(), second.hold()] == [True, True, False]
        assert [first.hold(), second.hold()] == [True, False]

    def test_locks_of_different_names_are_independent(self, holders):
        first, _ = holders
        other = Holder("another")
        assert first.hold()
        assert other.hold()
        other.release()

    def test_the_other_acquires_a_released_lock(self, holders):
        first, second = holders
        assert first.hold()
        assert not second.hold()
        first.release()
        first.release()
        for _ in range(50):
            assert second.hold()  # at once
            assert not first.hold()
            second.release()
            first, second = second, first

    def test_a_lost_connection_is_noticed_before_the_lock_is_used(self, holders):
        first, second = holders
        assert first.hold()
        cut(first.link)
        assert second.hold()
        assert not first.hold()
        assert not first.hold()
        second.release()
        until(first.hold)

    def test_without_the_database_there_is_no_lock_and_no_error(self, holders, monkeypatch, caplog):
        def away(**_):
            raise psycopg.OperationalError("nobody there")

        first, _ = holders
        with monkeypatch.context() as patch:
            patch.setattr("kernel.singleton.postgres.connect", away)
            assert not first.hold()
        assert "nobody there" in caplog.text
        assert first.hold()

    def test_an_undisturbed_holder_has_the_lock_and_heard_nothing(self, holders):
        first, second = holders
        assert not first.is_undisturbed()
        assert [first.hold(), second.hold()] == [True, False]
        assert [first.is_undisturbed(), second.is_undisturbed()] == [True, False]
        cut(first.link)
        until(lambda: not first.is_undisturbed())
        first.link.close()
        assert not first.is_undisturbed()

    def test_processes_without_the_lock_keep_no_connection(self, holders):
        first, second = holders
        assert first.hold()
        assert not second.hold()
        assert second.link is None


class TestOnlyOne:
    def test_the_second_instance_waits_for_the_first(self):
        order, waits = [], threading.Event()

        def second() -> None:
            with only_one("test", waits=waits.set):
                order.append("second")

        with only_one("test") as lock:
            thread = threading.Thread(target=second)
            thread.start()
            assert waits.wait(LIMIT_S)
            lock.check()
            order.append("first")
        thread.join(LIMIT_S)
        assert order == ["first", "second"]

    def test_one_that_is_stopped_while_it_waits_gives_up(self):
        waits: list[str] = []
        with only_one("test"), only_one("test", lambda: len(waits) == 1, lambda: waits.append("alive")) as lock:
            assert lock is None
        assert waits == ["alive"]
        with only_one("test") as lock:
            lock.check()

    def test_the_server_frees_the_lock_of_a_machine_that_is_lost(self, monkeypatch):
        monkeypatch.setitem(connection.settings_dict, "HOST", HOST)  # a socket leads to no other machine
        with only_one("test") as lock:
            shown = [lock.link.execute(f"SHOW tcp_{name}").fetchone()[0] for name in SILENCE]
        assert shown == ["5", "5", "3"]

    def test_a_lost_lock_is_an_error_at_the_next_check(self):
        with only_one("test") as lock:
            cut(lock.link)
            with pytest.raises(psycopg.Error):
                lock.check()
