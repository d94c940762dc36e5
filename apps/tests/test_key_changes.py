"""The end and the limit of a key are changed while it stays the same; its owner is notified before it expires."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps import keys, reconcile
from apps.models import AppKey
from mlp.tests.page_world import markup, visible_text, visitor

from .test_gateway import echo
from .test_keys import ask, make

__all__ = ["ask", "echo", "make"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def path(echo):
    return f"users/alice/apps/{echo.name}/keys/shop"


def test_by_rest_what_is_not_given_stays(as_alice, alice, echo, make, ask, path):
    key = make(days=30)
    assert ask(key).status_code == 200  # it is cached now
    before = AppKey.objects.get().expires
    answer = as_alice.call("put", path, {"rate": 1})
    assert (answer.status_code, answer.json()["rate"]) == (200, 1)
    assert AppKey.objects.get().expires == before
    assert [ask(key).status_code, ask(key).status_code] == [200, 429]
    assert as_alice.call("put", path, {"rate": None, "days": 300}).json()["rate"] is None
    assert AppKey.objects.get().expires > before + timedelta(days=200)
    assert [ask(key).status_code, ask(key).status_code] == [200, 200]
    assert as_alice.call("put", path, {"days": None}).json()["expires"] is None
    assert f"alice changed the key shop of the application {echo.name}." in visible_text(
        visitor(alice).get("/notifications")
    )


def test_an_expired_key_opens_again_with_another_end(as_alice, make, ask, path):
    key = make(days=1)
    AppKey.objects.update(expires=timezone.now() - timedelta(hours=1))
    assert ask(key).status_code == 401
    assert as_alice.call("put", path, {"days": 2}).status_code == 200
    assert ask(key).status_code == 200


@pytest.mark.parametrize(
    ("field", "body"),
    [("days", {"days": 0}), ("days", {"days": 3651}), ("rate", {"rate": 0}), ("rate", {"rate": "7"}),
     ("name", {"name": "x"})],
)  # fmt: skip
def test_what_is_wrong_is_named_and_changes_nothing(as_alice, make, path, field, body):
    make(rate=5)
    before = AppKey.objects.values().get()
    assert as_alice.refused("put", path, {"rate": 6} | body).startswith(f"{field}: ")
    assert AppKey.objects.values().get() == before


def test_others_change_none(as_alice, as_bob, make, path):
    make()
    assert as_bob.call("put", path, {"rate": 1}).status_code == 403
    assert as_alice.call("put", path.replace("shop", "none"), {"rate": 1}).status_code == 403
    assert AppKey.objects.get().rate is None


def test_it_is_changed_on_the_page(alice, bob, echo, make):
    make(days=30, rate=5)
    before, mine = AppKey.objects.get().expires, visitor(alice)
    page, address = f"/apps/{echo.name}/access", f"/apps/{echo.name}/access/key"
    assert "Change" in visible_text(mine.get(page))
    assert markup(mine.get(page)).inline == []
    answer = mine.post(address, {"name": "shop", "days": "kept", "rate": "9"}, follow=True)
    assert "The key shop is changed." in visible_text(answer)
    assert (AppKey.objects.get().rate, AppKey.objects.get().expires) == (9, before)
    mine.post(address, {"name": "shop", "days": "", "rate": ""})
    assert (AppKey.objects.get().rate, AppKey.objects.get().expires) == (None, None)
    assert "whole number" in visible_text(mine.post(address, {"name": "shop", "rate": "x"}, follow=True))
    assert visitor(bob).post(address, {"name": "shop", "rate": "1"}).status_code == 404
    assert AppKey.objects.get().rate is None


def test_the_owner_is_told_once_before_it_expires_and_again_of_another_end(alice, echo, make):
    make(days=6)
    make("late", days=9)
    make("ever")

    def told() -> int:
        reconcile.run()
        words = visible_text(visitor(alice).get("/notifications"))
        assert "The key late" not in words
        return words.count(f"The key shop of the application {echo.name} expires on ")

    assert [told(), told()] == [1, 1]
    keys.change(app=echo, name="shop", by="alice", days=3)
    assert [told(), told()] == [2, 2]
