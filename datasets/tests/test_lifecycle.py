"""A dataset's life cycle through REST. The data service itself is in test_webdav*.py."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import User
from datasets import copies, lifecycle, reconcile
from datasets.models import Dataset, Lock
from kernel import storage
from kernel.models import StateChange
from mlp.tests.tiers import few
from resources import tcc
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)

URL = "users/alice/datasets"


def rom() -> int:
    tenant = Tenant.objects.get(name="default")
    assert tcc.allocated(tenant)["rom"] == tenant.rom_inuse
    return tenant.rom_inuse


@pytest.fixture
def create(as_alice):
    def post(name: str = "digits", size: int = 3):
        response = as_alice.call("post", URL, {"name": name, "size": size})
        assert response.status_code == 201, response.content
        return response.json()

    return post


@pytest.fixture
def beat(as_alice):
    def put(state: str = "creating", progress: int = 0, name: str = "digits"):
        return as_alice.call("put", f"{URL}/{name}:heartbeat", {"state": state, "progress": progress})

    return put


def store(text: str = "abc", name: str = "digits") -> None:
    folder = storage.dataset_dir("alice", name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.txt").write_text(text)


def test_create_reserves_space_and_returns_all_fields(create):
    row = create(size=1000)
    expected = {
        "name": "digits",
        "user": "alice",
        "tenant": "default",
        "size": 1000,
        "state": "creating",
        "progress": 0,
    }
    assert expected.items() <= row.items()
    assert rom() == 1000


@pytest.mark.parametrize(
    ("field", "value"),
    few(
        [
            ("name", "."),
            ("name", ".hidden"),
            ("name", "Digits"),
            ("name", "a1"),
            ("name", "x" * 51),
            ("size", -1),
            ("size", 1.5),
            ("size", "3"),
            ("size", 2**63),
            ("user", "bob"),
            ("tenant", "none"),
            ("progress", 5),
        ],
        4,
    ),
)
def test_an_invalid_field_is_named(as_alice, field, value):
    assert as_alice.refused("post", URL, {"name": "digits", "size": 3, field: value}).startswith(f"{field}:")
    assert rom() == 0


def test_names_are_unique_and_missing_space_is_named(as_alice, create):
    create()
    assert as_alice.refused("post", URL, {"name": "digits", "size": 3}).startswith("name:")
    assert as_alice.refused("post", URL, {"name": "huge", "size": 1 << 50}).startswith("rom:")
    assert rom() == 3


def test_progress_never_goes_backwards(as_alice, create, beat):
    create()
    for progress in (10, 60, 30):
        assert beat(progress=progress).content == b'""'
    assert as_alice.call("get", f"{URL}/digits").json()["progress"] == 60


def test_ready_is_accepted_when_all_bytes_are_stored(as_alice, create, beat):
    create()
    store()
    assert beat("ready", 100).status_code == 200
    assert as_alice.call("get", f"{URL}/digits").json()["state"] == "ready"
    assert rom() == 3
    assert "state:" in beat("creating", 1).json()["msg"]


@pytest.mark.parametrize(
    ("progress", "text", "field"), [(100, "abcd", "size"), (100, "", "size"), (99, "abc", "progress")]
)
def test_ready_without_all_bytes_is_an_error_with_a_reason(as_alice, create, beat, progress, text, field):
    create()
    store(text)
    response = beat("ready", progress)
    assert response.status_code == 403
    assert response.json()["msg"].startswith(f"{field}:")
    row = as_alice.call("get", f"{URL}/digits").json()
    assert (row["state"], row["reason"]) == ("error", response.json()["msg"])


def test_the_uploader_may_report_an_error(as_alice, create, beat):
    create()
    beat("error", 5)
    row = as_alice.call("get", f"{URL}/digits").json()
    assert (row["state"], row["reason"]) == ("error", "reported by the uploader")


@pytest.mark.parametrize(
    "body", [{"state": "deleting", "progress": 1}, {"state": "ready"}, {"state": "ready", "progress": 101}]
)
def test_an_invalid_heartbeat_is_refused_before_the_dataset_is_read(as_alice, body):
    field = "progress" if body["state"] == "ready" else "state"
    assert as_alice.refused("put", f"{URL}/none:heartbeat", body).startswith(f"{field}:")


def test_delete_removes_files_and_row_and_releases_the_space(as_alice, create, beat, tasks):
    create()
    store()
    beat("ready", 100)
    assert as_alice.call("delete", f"{URL}/digits").json()["state"] == "deleting"
    tasks.run(times=2)
    assert not storage.dataset_dir("alice", "digits").exists()
    assert not Dataset.objects.exists()
    assert rom() == 0
    assert [row.target for row in StateChange.objects.filter(kind="dataset").order_by("id")] == [
        "creating",
        "ready",
        "deleting",
    ]


def test_delete_requires_ready_or_error(as_alice, create):
    create()
    assert as_alice.refused("delete", f"{URL}/digits").startswith("state:")


def test_a_lost_deletion_is_repeated(as_alice, create, beat, tasks, monkeypatch):
    create()
    beat("error", 0)
    as_alice.call("delete", f"{URL}/digits")
    tasks.queue.clear()
    monkeypatch.setattr(reconcile, "AGAIN_AFTER", timedelta(0))
    reconcile.run()
    tasks.run()
    assert not Dataset.objects.exists()
    assert rom() == 0


def test_an_upload_without_heartbeats_ends_in_error(as_alice, create):
    create()
    Dataset.objects.update(touched=timezone.now() - timedelta(minutes=9))
    reconcile.run()
    assert as_alice.call("get", f"{URL}/digits").json()["state"] == "creating"
    Dataset.objects.update(touched=timezone.now() - timedelta(minutes=11))
    reconcile.run()
    row = as_alice.call("get", f"{URL}/digits").json()
    assert (row["state"], row["reason"]) == ("error", "no heartbeat and no bytes for 600 s")


def test_a_heartbeat_at_the_last_moment_prevents_the_failure(as_alice, create, beat):
    """reconcile has selected it as silent, but a heartbeat arrives before it is failed."""
    create()
    silent = timezone.now() - timedelta(minutes=11)
    Dataset.objects.update(touched=silent)
    beat("creating", 5)
    dataset = Dataset.objects.get()
    lifecycle.fail_silent(dataset.pk, silent, "silent")
    lifecycle.fail_silent(dataset.pk, dataset.touched - timedelta(microseconds=1), "silent")
    assert as_alice.call("get", f"{URL}/digits").json()["state"] == "creating"
    lifecycle.fail_silent(dataset.pk, dataset.touched, "silent")
    assert as_alice.call("get", f"{URL}/digits").json()["state"] == "error"


def test_a_dataset_that_cannot_be_failed_does_not_block_others(as_alice, create, monkeypatch):
    create()
    create("letters")
    Dataset.objects.update(touched=timezone.now() - timedelta(minutes=11))
    first, fail = Dataset.objects.order_by("pk").first().pk, reconcile.lifecycle.fail_silent

    def trouble(pk, *about):
        if pk == first:
            raise ZeroDivisionError("a fault of ours")
        fail(pk, *about)

    monkeypatch.setattr("datasets.lifecycle.fail_silent", trouble)
    monkeypatch.setattr("datasets.webdav.lock_store.sweep", lambda: 1 / 0)
    reconcile.run()
    assert {row["name"]: row["state"] for row in as_alice.call("get", URL).json()} == {
        "digits": "creating",
        "letters": "error",
    }


def test_another_user_sees_nothing(as_bob, create):
    create()
    assert as_bob.refused("get", f"{URL}/digits") == as_bob.refused("get", "users/bob/datasets/none")
    as_bob.refused("delete", f"{URL}/digits")
    as_bob.refused("put", f"{URL}/digits:heartbeat", {"state": "error", "progress": 1})


def locked_path(owner, dataset: str, holder: str) -> Lock:
    until = timezone.now() + timedelta(minutes=1)
    token = f"urn:uuid:{owner}-{dataset}-{holder}"
    return Lock.objects.create(
        token=token, user=owner, dataset=dataset, path="a", holder=holder, deep=True, exclusive=True, expires=until
    )


class TestOwnDatasetOnly:
    """Each verb changes its own dataset only."""

    def test_deactivation_ends_only_the_users_own_uploads_and_locks(self, alice, bob):
        rows = {
            (owner.username, name): Dataset.objects.create(
                user=owner, tenant=owner.tenant, name=name, size=0, state=state
            )
            for owner in (alice, bob)
            for name, state in (("digits", "creating"), ("letters", "ready"))
        }
        locked_path(alice, "digits", "alice")
        locked_path(bob, "digits", "alice")
        kept = locked_path(alice, "letters", "bob")
        accounts.deregister(username="alice", by="test")
        states = {key: Dataset.objects.get(pk=row.pk).state for key, row in rows.items()}
        assert states == {
            ("alice", "digits"): "error",
            ("alice", "letters"): "ready",
            ("bob", "digits"): "creating",
            ("bob", "letters"): "ready",
        }
        assert list(Lock.objects.all()) == [kept]

    def test_an_erased_datasets_locks_are_removed_and_no_others(self, as_alice, alice, bob, create, beat, tasks):
        create()
        create("letters")
        beat("error")
        locked_path(alice, "digits", "bob")
        kept = [locked_path(alice, "letters", "bob"), locked_path(bob, "digits", "bob")]
        as_alice.call("delete", f"{URL}/digits")
        tasks.run()
        assert set(Lock.objects.all()) == set(kept)
        assert [row.name for row in Dataset.objects.all()] == ["letters"]

    def test_a_report_changes_the_named_dataset_only(self, as_alice, create, beat):
        create()
        create("letters")
        beat("creating", 7, "letters")
        assert {row.name: row.progress for row in Dataset.objects.all()} == {"digits": 0, "letters": 7}
        beat("error", 7, "letters")
        assert {row.name: row.state for row in Dataset.objects.all()} == {"digits": "creating", "letters": "error"}

    def test_an_ended_or_missing_dataset_cannot_fail(self, create, beat):
        create()
        store("abc")
        Dataset.objects.update(size=3)
        beat("ready", 100)
        ready = Dataset.objects.get()
        lifecycle.fail(ready.pk, "late", by="test")
        lifecycle.fail(ready.pk + 1, "gone", by="test")
        lifecycle.fail_silent(ready.pk, timezone.now(), "late")
        lifecycle.fail_silent(ready.pk + 1, timezone.now(), "gone")
        assert (Dataset.objects.get().state, Dataset.objects.get().reason) == ("ready", "")

    @pytest.mark.parametrize(("state", "stored"), [("creating", 3), ("error", 3), ("ready", 99), ("deleting", 99)])
    def test_a_recount_updates_the_stored_size_unless_the_dataset_is_ready(self, create, state, stored):
        create()
        store("abc")
        Dataset.objects.filter(name="digits").delete()
        owner = User.objects.get(username="alice")
        row = Dataset.objects.create(user=owner, tenant=owner.tenant, name="digits", size=99, stored=99, state=state)
        lifecycle.recount(row.pk)
        lifecycle.recount(row.pk + 1)
        assert Dataset.objects.get().stored == stored

    def test_a_name_in_the_trash_is_refused_as_such_and_only_the_own_counts(self, as_alice, alice, bob, create):
        for owner in (alice, bob):
            Dataset.objects.create(user=owner, tenant=owner.tenant, name="mine", size=0, state="ready")
        Dataset.objects.filter(user=bob).update(trashed=timezone.now())
        body = {"name": "mine", "size": 1}
        assert as_alice.refused("post", URL, body) == "name: you already have a dataset named mine"
        Dataset.objects.filter(user=alice).update(trashed=timezone.now())
        assert as_alice.refused("post", URL, body) == "name: you already have a dataset named mine; it is in the trash"

    def test_what_a_desktop_has_left_is_removed_once_all_bytes_are_there(self, create, beat):
        create()
        store("abc")
        left = storage.dataset_dir("alice", "digits") / ".DS_Store"
        left.write_bytes(b"\x00\x00\x00\x01Bud1" + b"\x00" * 80)
        assert beat("ready", 100).status_code == 200
        assert not left.exists()
        row = Dataset.objects.get()
        assert (row.state, row.stored) == ("ready", 3)
        assert ".DS_Store" in row.reason

    def test_a_copy_reports_on_what_is_being_copied_only(self, create, alice):
        create()
        row = Dataset.objects.create(
            user=alice, tenant=alice.tenant, name="clean", size=5, stored=5, src="home/x", state="ready"
        )
        lifecycle.note_wait(row.pk, copies.TURN)
        lifecycle.declare_again(row.pk, 7)
        uploaded = Dataset.objects.get(name="digits")
        lifecycle.declare_again(uploaded.pk, 7)
        assert {each.name: (each.size, each.reason) for each in Dataset.objects.all()} == {
            "clean": (5, ""),
            "digits": (3, ""),
        }

    def test_the_end_of_a_dataset_that_becomes_a_version_says_so(self, alice):
        row = Dataset.objects.create(user=alice, tenant=alice.tenant, name="new", size=0, state="ready")
        with transaction.atomic():
            lifecycle.give_away(Dataset.objects.select_for_update().get(pk=row.pk), copies.TURN, "alice")
        change = StateChange.objects.get(object_id=row.pk, kind="dataset", transition="erase")
        assert (str(change.reason), change.by) == (str(copies.TURN), "alice")
