"""The scope of WebDAV locks, requested at the data service's internal address as nginx does."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts import lifecycle as accounts
from datasets.models import Lock
from datasets.webdav import gate
from kernel import storage

from .test_webdav_fast import ask

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lock(alice):
    """Lock a path of alice's `.home` for another user."""

    def make(path: str, *, deep: bool = True, holder: str = "bob", seconds: float = 60) -> str:
        token = f"urn:uuid:{uuid.uuid4()}"
        until = timezone.now() + timedelta(seconds=seconds)
        values = {"dataset": ".home", "path": path, "holder": holder, "deep": deep, "exclusive": True, "expires": until}
        Lock.objects.create(token=token, user=alice, **values)
        return token

    return make


@pytest.fixture
def delete(alice):
    """Request the deletion of a file as alice; return the status."""

    def send(path: str, **headers) -> int:
        file = storage.home_dir("alice") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        headers |= {"x_internal_key": gate.internal_key(), "authorization": f"Bearer {accounts.token_of(alice)}"}
        status, _ = ask("/internal/data/verb", "DELETE", x_data_uri=f"/data/alice/.home/{path}", **headers)
        assert file.exists() is (status != "204 No Content")
        return int(status[:3])

    return send


def test_a_folder_lock_covers_its_contents_but_not_names_with_the_same_prefix(lock, delete):
    lock("a")
    assert {path: delete(path) for path in ("a/x", "a/b/x", "ab", "abc/x", "b/a/x", "c")} == {
        "a/x": 423,
        "a/b/x": 423,
        "ab": 204,
        "abc/x": 204,
        "b/a/x": 204,
        "c": 204,
    }


def test_a_shallow_lock_covers_the_folder_and_its_names_only(lock, delete):
    lock("a", deep=False)
    assert [delete("a/x"), delete("a/b/x"), delete("ab")] == [423, 204, 204]


def test_a_lock_on_the_root_covers_everything(lock, delete):
    lock("")
    assert [delete("x"), delete("a/x")] == [423, 423]


def test_only_its_owner_with_its_token_may_write(lock, delete):
    theirs, own = lock("a"), lock("b", holder="alice")
    assert delete("a/x", **{"if": f"(<{theirs}>)"}) == 423
    assert delete("b/x") == 423
    assert delete("b/x", **{"if": f"(<{own}>)"}) == 204


def test_an_expired_lock_covers_nothing(lock, delete):
    lock("a", seconds=-1)
    assert delete("a/x") == 204
