"""The trainer's lease on the real key-value store: acquired once, renewed and ended only by its own request."""

from __future__ import annotations

import time

import pytest

from aiops.wire import kv, lease


@pytest.fixture(autouse=True)
def buckets():
    kv.ensure()


def test_it_is_acquired_once_until_it_is_ended():
    assert lease.current() == {}
    before = time.time()
    assert lease.acquire("a", "first", 60)
    taken = lease.current()
    assert (taken["uuid"], taken["owner"], lease.is_live(taken), lease.is_overdue(taken)) == ("a", "first", True, False)
    assert before + 60 <= taken["until"] <= time.time() + 60
    assert not lease.acquire("b", "second")
    assert not lease.acquire("a", "first")
    assert lease.current() == taken


def test_another_requests_lease_is_not_ended():
    lease.acquire("a", "first", 60)
    before = lease.current()
    assert not lease.end("b")
    assert lease.current() == before
    assert lease.is_live(before)


def test_of_concurrent_ends_one_succeeds():
    lease.acquire("a", "first", 60)
    assert [lease.end("a"), lease.end("a"), lease.end()] == [True, False, False]
    assert not lease.is_live(lease.current())
    assert lease.acquire("b", "second")


def test_without_a_request_any_lease_is_ended():
    assert not lease.end()
    lease.acquire("a", "first", 60)
    assert lease.end()


def test_only_its_own_request_renews_it_and_not_after_its_end():
    lease.acquire("a", "first", 1)
    before = lease.current()
    lease.renew("b", seconds=60)
    assert lease.current() == before
    lease.renew("a", "second", seconds=60)
    renewed = lease.current()
    assert (renewed["owner"], renewed["since"]) == ("second", before["since"])
    assert renewed["until"] > before["until"] + 50
    lease.end("a")
    ended = lease.current()
    lease.renew("a", seconds=600)
    assert lease.current() == ended


def test_it_is_renewed_only_after_part_of_its_time():
    lease.acquire("a", "first", 60)
    before = lease.current()
    lease.renew("a", "first", seconds=60)
    assert lease.current() == before
    lease.renew("a", "first", seconds=120)
    assert lease.current()["until"] > before["until"]


def test_an_expired_lease_is_ended_before_it_is_acquired_again():
    lease.acquire("a", "first", -60)  # longer ago than a clock may be set back
    assert lease.is_overdue(lease.current())
    assert not lease.acquire("b", "second")
    assert lease.end("a")
    assert not lease.is_overdue(lease.current())
    assert lease.acquire("b", "second")
