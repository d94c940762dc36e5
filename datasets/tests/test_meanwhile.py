"""What a verb of datasets does when something else happens to its dataset, or beside it, while it is at work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import IntegrityError
from django.utils import timezone

from accounts.models import User
from conftest import move
from datasets import lifecycle
from datasets.models import Dataset
from kernel import storage
from kernel.errors import Refused
from kernel.locking import Missing, WrongState
from resources.models import ResourceRequest, Tenant

pytestmark = pytest.mark.django_db(transaction=True)


def new_dataset(user: User, name: str = "digits", size: int = 3) -> Dataset:
    return lifecycle.create_dataset(user=user, name=name, size=size, by="test")


def store(user: User, text: str = "abc", name: str = "digits") -> None:
    folder = storage.dataset_dir(user.username, name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.txt").write_text(text)


def report(user: User, state: str = "ready", progress: int = 100, name: str = "digits") -> None:
    lifecycle.heartbeat(user=user, name=name, state=state, progress=progress, by="test")


def fresh(dataset: Dataset) -> Dataset:
    return Dataset.objects.get(pk=dataset.pk)


def during(monkeypatch, function: str, what: Callable[[], object]) -> list[object]:
    """Let `what` happen during the first call of storage's function, after its work. Return the results so far."""
    real, results = getattr(storage, function), []

    def both(*arguments):
        results.append(real(*arguments))
        if len(results) == 1:
            what()
        return results[-1]

    monkeypatch.setattr(storage, function, both)
    return results


def upload(dataset: Dataset, text: str) -> None:
    """As the data service does: first the bytes, then the row."""
    store(dataset.user, text, dataset.name)
    later = fresh(dataset).touched + timedelta(seconds=1)
    Dataset.objects.filter(pk=dataset.pk).update(stored=len(text), touched=later)


class TestReady:
    @pytest.mark.parametrize(("size", "state"), [(5, "ready"), (3, "error")])
    def test_bytes_that_arrive_while_they_are_counted_are_counted_again(self, alice, monkeypatch, size, state):
        dataset = new_dataset(alice, size=size)
        store(alice, "abc")
        counts = during(monkeypatch, "tree_size", lambda: upload(dataset, "abcde"))
        if state == "error":
            with pytest.raises(Refused, match=r"^size: 5 bytes are stored, but 3 were declared$"):
                report(alice)
        else:
            report(alice)
        assert counts == [3, 5]
        assert fresh(dataset).state == state

    def test_what_is_stored_is_recorded(self, alice):
        dataset = new_dataset(alice)
        store(alice)
        report(alice)
        assert (fresh(dataset).stored, fresh(dataset).progress) == (3, 100)

    def test_a_dataset_replaced_by_one_of_the_same_name_is_checked_again(self, alice, monkeypatch):
        dataset = new_dataset(alice)
        store(alice)

        def again() -> None:
            Dataset.objects.all().delete()
            replacement = new_dataset(alice, size=9)
            Dataset.objects.filter(pk=replacement.pk).update(touched=dataset.touched)

        during(monkeypatch, "tree_size", again)
        with pytest.raises(Refused, match="9 were declared"):
            report(alice)

    @pytest.mark.parametrize("state", ["ready", "creating", "error"])
    def test_after_the_upload_no_heartbeat_is_accepted(self, alice, monkeypatch, state):
        dataset = new_dataset(alice)
        lifecycle.fail(dataset.pk, "x", by="test")
        counts = during(monkeypatch, "tree_size", timezone.now)
        refusal = r"^state: the dataset is error; it accepts heartbeats only during the upload$"
        with pytest.raises(WrongState, match=refusal):
            report(alice, state)
        assert counts == []  # a folder may have millions of files

    def test_a_dataset_that_fails_while_its_bytes_are_counted_stays_failed(self, alice, monkeypatch):
        dataset = new_dataset(alice)
        store(alice)
        during(monkeypatch, "tree_size", lambda: lifecycle.fail(dataset.pk, "silent", by="reconcile"))
        with pytest.raises(WrongState, match="the dataset is error; it accepts heartbeats only"):
            report(alice)
        assert (fresh(dataset).state, fresh(dataset).reason) == ("error", "silent")

    def test_a_heartbeat_for_a_missing_dataset_is_refused(self, alice):
        for state in ("ready", "creating", "error"):
            with pytest.raises(Missing, match="no such dataset"):
                report(alice, state, name="none")

    def test_other_users_and_other_names_are_not_affected(self, alice, bob):
        others = [new_dataset(bob), new_dataset(alice, "letters")]
        dataset = new_dataset(alice)
        others += [new_dataset(alice, "words")]
        store(alice)
        report(alice, "creating", 7)
        report(alice)
        assert fresh(dataset).state == "ready"
        lifecycle.delete_dataset(user=alice, name="digits", by="test")
        assert fresh(dataset).state == "deleting"
        assert {(fresh(other).state, fresh(other).progress) for other in others} == {("creating", 0)}

    @pytest.mark.parametrize("progress", [0, 99])
    def test_ready_with_another_progress_than_100_is_refused(self, alice, progress):
        new_dataset(alice)
        store(alice)
        with pytest.raises(Refused, match=rf"^progress: must be 100 for ready, not {progress}$"):
            report(alice, "ready", progress)


class TestCreate:
    def test_the_tenant_of_the_user_is_charged(self, alice):
        other = Tenant.objects.create(name="other", rom=100)
        move(alice, other)
        dataset = new_dataset(alice, size=7)
        request = ResourceRequest.objects.get()
        assert (request.tenant, request.owner, request.applier, request.rom) == (other, "alice", "dm", 7)
        assert fresh(dataset).tenant == other

    def test_a_name_that_is_taken_is_refused_by_name(self, alice):
        new_dataset(alice)
        with pytest.raises(Refused, match=r"^name: you already have a dataset named digits$"):
            new_dataset(alice)

    @pytest.mark.parametrize("name", ["Digits", "a/b", ".hidden", ""])
    def test_an_invalid_name_is_refused_for_every_caller(self, alice, name):
        with pytest.raises(Refused, match=r"^name:"):
            new_dataset(alice, name)
        assert not Dataset.objects.exists()

    def test_any_other_integrity_error_is_raised_as_it_is(self, alice):
        with pytest.raises(IntegrityError, match="dataset_sizes"):
            new_dataset(alice, size=-1)


class TestErase:
    @pytest.fixture
    def deleting(self, alice) -> list[Dataset]:
        datasets = [new_dataset(alice, name) for name in ("digits", "letters", "words")]
        for dataset in datasets:
            store(alice, name=dataset.name)
            report(alice, name=dataset.name)
            lifecycle.delete_dataset(user=alice, name=dataset.name, by="test")
        return datasets

    def stored(self) -> list[str]:
        names = ("digits", "letters", "words")
        return [name for name in names if storage.dataset_dir("alice", name).exists()]

    def test_other_deleted_datasets_are_not_erased(self, deleting):
        lifecycle.erase(deleting[1].pk)
        assert self.stored() == ["digits", "words"]
        assert set(Dataset.objects.all()) == {deleting[0], deleting[2]}

    def test_a_dataset_that_is_not_being_deleted_is_kept(self, alice, deleting):
        kept = new_dataset(alice, "kept")
        lifecycle.erase(kept.pk)
        lifecycle.erase(kept.pk + 5)
        assert fresh(kept).state == "creating"
        assert self.stored() == ["digits", "letters", "words"]

    def test_two_workers_may_erase_it_at_once(self, deleting, monkeypatch):
        first = deleting[0].pk
        during(monkeypatch, "remove_tree", lambda: lifecycle.erase(first))
        lifecycle.erase(first)
        assert ResourceRequest.objects.get(pk=lifecycle.request_id(first)).state == "released"
        assert set(Dataset.objects.all()) == set(deleting[1:])


class TestRecount:
    def test_bytes_that_arrive_meanwhile_are_counted(self, alice, monkeypatch):
        beside, dataset = new_dataset(alice, "letters"), new_dataset(alice)
        store(alice)
        counts = during(monkeypatch, "tree_size", lambda: upload(dataset, "abcde"))
        lifecycle.recount(dataset.pk)
        assert (counts, fresh(dataset).stored, fresh(beside).stored) == ([3, 5], 5, 0)

    def test_without_an_upload_the_bytes_are_counted_once(self, alice, monkeypatch):
        dataset = new_dataset(alice)
        store(alice)
        counts = during(monkeypatch, "tree_size", timezone.now)
        lifecycle.recount(dataset.pk)
        assert counts == [3]
