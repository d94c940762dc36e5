"""Row locks on the real PostgreSQL: waiting, reading after the wait, and refusals."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, models, transaction
from django.test.utils import CaptureQueriesContext

from accounts.models import Token, User
from datasets.models import Dataset
from kernel.locking import Missing, WrongState, get_or_missing, lock_row, locked
from kernel.tests.row_locks import blocked, in_thread
from mlp.tests.patience import LIMIT_S

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_second_waits_for_the_first_and_reads_its_changes(alice):
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
    assert other.result(LIMIT_S) == "of the first"


def test_the_lock_is_held_until_the_outer_transaction_ends(alice):
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
    assert other.result(LIMIT_S)


def test_rows_that_refer_to_the_locked_row_can_be_inserted(alice):
    def refer() -> int:
        return Token.objects.create(user=alice, kind=Token.Kind.SERVICE, name="x").pk

    with transaction.atomic():
        lock_row(User, pk=alice.pk)
        assert in_thread(refer).result(LIMIT_S)


def test_related_rows_are_not_locked(alice, monkeypatch):
    """Also where a model's manager selects the related row with it."""
    dataset = Dataset.objects.create(user=alice, tenant=alice.tenant, name="x", size=1)

    class WithUser(models.Manager):
        def get_queryset(self):
            return super().get_queryset().select_related("user")

    manager = WithUser()
    manager.model = Dataset
    monkeypatch.setattr(Dataset._meta, "default_manager", manager)

    def change() -> int:
        return User.objects.filter(pk=alice.pk).update(password="of the second")

    with transaction.atomic():
        assert lock_row(Dataset, pk=dataset.pk).user == alice
        assert in_thread(change).result(LIMIT_S) == 1


def test_a_missing_row_is_none(alice):
    with transaction.atomic():
        assert lock_row(User, username="nobody") is None


@pytest.mark.parametrize(
    ("key", "end"),
    [
        ({}, "FOR NO KEY UPDATE"),
        ({"tenant__name": "default"}, 'FOR NO KEY UPDATE OF "user"'),
        ({"last_login": None}, 'FOR NO KEY UPDATE OF "user"'),
    ],
)
def test_the_values_of_columns_are_looked_up_by_a_statement_that_is_built_once(alice, key, end):
    """And anything else by the ORM, which names the table."""
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        assert lock_row(User, username="alice", **key) == alice
    assert [query["sql"].partition("FOR ") for query in queries][-1][1:] == ("FOR ", end.removeprefix("FOR "))


def test_the_first_row_in_the_order_of_a_model_is_locked(alice, monkeypatch):
    monkeypatch.setattr(Dataset._meta, "ordering", ["-size"])
    rows = [
        Dataset.objects.create(user=alice, tenant=alice.tenant, name=name, size=size)
        for size, name in ((1, "a"), (2, "b"))
    ]
    with transaction.atomic():
        assert lock_row(Dataset, user=alice) == rows[1]


class TestGetOrMissing:
    def test_a_row_is_found_by_its_number(self, alice):
        assert get_or_missing(User.objects.all(), alice.pk, "user") == alice

    @pytest.mark.parametrize("number", [None, 0])
    def test_what_is_none_of_the_rows_is_missing(self, alice, number):
        with pytest.raises(Missing) as refusal:
            get_or_missing(User.objects.all(), number, "user")
        assert str(refusal.value.msg) == "user: no such user"
        with pytest.raises(Missing):
            get_or_missing(User.objects.none(), alice.pk, "user")


class TestLocked:
    def test_a_missing_row_is_reported_by_its_kind(self, alice):
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
    def test_a_transition_that_is_not_allowed_is_refused_and_rolled_back(self, alice, state, verb, words):
        dataset = Dataset.objects.create(user=alice, tenant=alice.tenant, name="x", size=1, state=state)

        def work() -> None:
            with locked(Dataset, pk=dataset.pk) as row:
                row.size = 2
                row.save()
                getattr(row, verb)(by="test")

        with pytest.raises(WrongState) as refusal:
            work()
        assert str(refusal.value.msg) == words
        dataset.refresh_from_db()
        assert (dataset.size, dataset.state) == (1, state)

    def test_changes_are_committed_at_the_end(self, alice):
        dataset = Dataset.objects.create(user=alice, tenant=alice.tenant, name="x", size=1)
        with locked(Dataset, pk=dataset.pk) as row:
            assert connection.in_atomic_block
            row.size = 2
            row.save()
        assert not connection.in_atomic_block
        dataset.refresh_from_db()
        assert dataset.size == 2

    def test_of_two_concurrent_transitions_one_succeeds(self, alice):
        dataset = Dataset.objects.create(user=alice, tenant=alice.tenant, name="x", size=1, state="ready")

        def erase() -> None:
            with locked(Dataset, pk=dataset.pk) as row:
                row.erase(by="second")
                row.save()

        with locked(Dataset, pk=dataset.pk) as row:
            other = in_thread(erase)
            blocked(1)
            row.erase(by="first")
            row.save()
        with pytest.raises(WrongState):
            other.result(LIMIT_S)
