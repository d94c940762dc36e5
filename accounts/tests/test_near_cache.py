"""The cache of tokens in each process; that other processes drop theirs is seen at the gateway (apps/tests)."""

from __future__ import annotations

import pytest
from redis.exceptions import ConnectionError as ConnectionLost

from accounts import lifecycle
from accounts.tokens import lookup
from kernel import broker, near_cache
from kernel.errors import Fault

pytestmark = pytest.mark.django_db


@pytest.fixture
def no_valkey(monkeypatch):
    """Return a function that takes Valkey away from those who read."""

    def away(*args, **options):
        raise ConnectionLost

    return lambda: monkeypatch.setattr(broker.broker().client, "get", away)


@pytest.fixture
def token(alice):
    """Alice's token, which this process has read from Valkey."""
    text = lifecycle.token_of(alice)
    assert [lookup(text).username for _ in range(2)] == ["alice", "alice"]
    return text


def test_a_token_is_read_once(token, no_valkey, django_assert_num_queries):
    no_valkey()
    with django_assert_num_queries(0):
        assert lookup(token).username == "alice"
    with django_assert_num_queries(1):
        assert lookup(token[:-1] + ("a" if token[-1] != "a" else "b")) is None, "a wrong one is judged by the row"


def test_it_is_read_again_when_anything_is_revoked(token, bob, no_valkey, django_assert_num_queries):
    lifecycle.rotate_token(user=bob, by="test")
    no_valkey()
    with django_assert_num_queries(1):
        assert lookup(token).username == "alice"


def test_it_is_read_again_after_some_seconds(token, monkeypatch, no_valkey, django_assert_num_queries):
    later = near_cache.time.monotonic() + near_cache.KEPT_S + 1
    monkeypatch.setattr(near_cache.time, "monotonic", lambda: later)
    no_valkey()
    with django_assert_num_queries(1):
        assert lookup(token).username == "alice"


def test_nothing_is_revoked_where_the_others_cannot_be_told(alice, token, monkeypatch, tmp_path):
    monkeypatch.setattr(near_cache, "path", lambda: tmp_path / "none" / "epoch")
    with pytest.raises(Fault, match="try again later"):
        lifecycle.rotate_token(user=alice, by="test")
    monkeypatch.undo()
    assert lookup(token).username == "alice"


def test_parts_on_several_machines_keep_nothing(token, settings, no_valkey, django_assert_num_queries):
    settings.MLP_RUNNER = "kubernetes"
    no_valkey()
    with django_assert_num_queries(1):
        assert lookup(token).username == "alice"
