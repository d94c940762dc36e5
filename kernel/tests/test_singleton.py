"""The singleton lock: held in the database, lost with its connection, checked at each use."""

from __future__ import annotations

import threading

import psycopg
import pytest
from django.db import connection

from kernel.singleton import Holder, only_one
from kernel.tests.nats_tools import until

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
def holders():
    made = Holder("test"), Holder("test")
    yield made
    for holder in made:
        holder.let_go()


class TestHolder:
    def test_one_has_it_as_often_as_it_asks_and_the_other_has_not(self, holders):
        first, second = holders
        assert [first.hold(), first.hold(), second.hold()] == [True, True, False]
        assert [first.hold(), second.hold()] == [True, False]

    def test_another_name_is_another_lock(self, holders):
        first, _ = holders
        other = Holder("another")
        assert first.hold()
        assert other.hold()
        other.let_go()

    def test_the_other_takes_over_what_was_let_go(self, holders):
        first, second = holders
        assert first.hold()
        assert not second.hold()
        first.let_go()
        first.let_go()
        assert second.hold()
        assert not first.hold()

    def test_whoever_lost_the_lock_with_the_connection_notices_before_it_goes_on(self, holders):
        first, second = holders
        assert first.hold()
        cut(first.link)
        assert second.hold()
        assert not first.hold()
        assert not first.hold()
        second.let_go()
        assert first.hold()

    def test_a_database_that_is_away_is_no_lock_and_no_error(self, holders, monkeypatch, caplog):
        def away(**_):
            raise psycopg.OperationalError("nobody there")

        first, _ = holders
        with monkeypatch.context() as patch:
            patch.setattr(psycopg, "connect", away)
            assert not first.hold()
        assert "nobody there" in caplog.text
        assert first.hold()

    def test_those_who_have_it_not_leave_no_connection_open(self, holders):
        first, second = holders
        assert first.hold()
        assert not second.hold()
        assert second.link is None


class TestOnlyOne:
    def test_the_second_waits_until_the_first_has_ended(self):
        order, waits = [], threading.Event()

        def second() -> None:
            waits.set()
            with only_one("test"):
                order.append("second")

        with only_one("test") as held:
            thread = threading.Thread(target=second)
            thread.start()
            assert waits.wait(60)
            held.check()
            order.append("first")
        thread.join(60)
        assert order == ["first", "second"]

    def test_a_lost_lock_is_an_error_at_the_next_check(self):
        with only_one("test") as held:
            cut(held.link)
            with pytest.raises(psycopg.Error):
                held.check()
