"""Row locks on the real PostgreSQL: waiting, reading after the wait, and refusals."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from accounts.models import Token, User
from datasets.models import Dataset
from kernel.locking import Missing, WrongState, lock_row, locked
from kernel.tests.row_locks import blocked, in_thread

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_second_waits_for_the_first_and_reads_what_it_has_committed(alice):
    def second() -> str:
        with transaction.atomic():
            return lock_row(User, pk=alice.pk).password

    with transaction.atomic():
        row = lock_row(User, pk=alice.pk)
        other = in_thread(second)
        (query,) = blocked(1)
        assert query.startswith("SELECT")
        row.password = "of the first"
        row.save(update_fields=["password"])
    assert other.result(60) == "of the first"


def test_it_is_held_until_the_transaction_ends_also_after_an_inner_block(alice):
    ended = threading.Event()

    def second() -> bool:
        with transaction.atomic():
            lock_row(User, pk=alice.pk)
            return ended.is_set()

    with transaction.atomic():
        with transaction.atomic():
            lock_row(User, pk=alice.pk)
        other = in_thread(second)
        blocked(1)
        ended.set()
    assert other.result(60)


def test_rows_that_only_refer_to_it_are_made_meanwhile(alice):
    def refer() -> int:
        return Token.objects.create(user=alice, kind=Token.Kind.SERVICE, name="x").pk

    with transaction.atomic():
        lock_row(User, pk=alice.pk)
        assert in_thread(refer).result(60)


def test_what_the_row_refers_to_is_not_locked_along(alice, monkeypatch):
    """Also where a model's manager selects the related row with it."""
    made = Dataset.objects.create(user=alice, tenant=alice.tenant, name="x", size=1)
    manager = type(Dataset._default_manager)
    monkeypatch.setattr(
        manager, "get_queryset", lambda self: super(manager, self).get_queryset().select_related("user")
    )

    def change() -> int:
        return User.objects.filter(pk=alice.pk).update(password="of the second")

    with transaction.atomic():
        assert lock_row(Dataset, pk=made.pk).user == alice
        assert in_thread(change).result(60) == 1


def test_nothing_to_lock_is_none(alice):
    with transaction.atomic():
        assert lock_row(User, username="nobody") is None


class TestLocked:
    def test_what_is_not_there_is_missing_by_its_kind(self, alice):
        with pytest.raises(Missing) as refusal, locked(Dataset, user=alice, name="x"):
            raise AssertionError("there is nothing to work on")
        assert str(refusal.value.msg) == "dataset: no such dataset"

    @pytest.mark.parametrize(
        ("state", "verb", "words"),
        [
            ("ready", "complete", "state: the dataset is ready; only an upload in progress can be completed"),
            ("creating", "erase", "state: the upload is still in progress; cancel it before you delete the dataset"),
            ("deleting", "erase", "state: the dataset is already being deleted"),
            ("deleting", "fail", "state: the dataset is already being deleted"),
        ],
    )
    def test_a_transition_that_is_not_allowed_is_refused_in_its_own_words_and_undoes_the_rest(
        self, alice, state, verb, words
    ):
        made = Dataset.objects.create(user=alice, tenant=alice.tenant, name="x", size=1, state=state)

        def work() -> None:
            with locked(Dataset, pk=made.pk) as row:
                row.size = 2
                row.save()
                getattr(row, verb)(by="test")

        with pytest.raises(WrongState) as refusal:
            work()
        assert str(refusal.value.msg) == words
        made.refresh_from_db()
        assert (made.size, made.state) == (1, state)

    def test_what_was_changed_is_committed_at_its_end(self, alice):
        made = Dataset.objects.create(user=alice, tenant=alice.tenant, name="x", size=1)
        with locked(Dataset, pk=made.pk) as row:
            assert connection.in_atomic_block
            row.size = 2
            row.save()
        assert not connection.in_atomic_block
        made.refresh_from_db()
        assert made.size == 2

    def test_of_two_at_once_one_moves_it_and_the_other_is_refused(self, alice):
        made = Dataset.objects.create(user=alice, tenant=alice.tenant, name="x", size=1, state="ready")

        def erase() -> None:
            with locked(Dataset, pk=made.pk) as row:
                row.erase(by="second")
                row.save()

        with locked(Dataset, pk=made.pk) as row:
            other = in_thread(erase)
            blocked(1)
            row.erase(by="first")
            row.save()
        with pytest.raises(WrongState):
            other.result(60)
