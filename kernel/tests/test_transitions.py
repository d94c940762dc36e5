"""A row that is read again by several threads of a process at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from django.db import connection, models

from datasets.models import Dataset
from mlp.operators.tests.admin_world import put

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT_S = 20


@pytest.fixture
def row(alice):
    return put(Dataset, alice, "photos", "ready")


def test_two_threads_read_rows_again_at_the_same_time(row, monkeypatch):
    """The second has begun when the first ends: the first protected the state again, which the second had yet to set.

    The gateway answered 503 so, for an application that was up.
    """
    second_is_in, first_has_ended = Event(), Event()
    read = models.Model.refresh_from_db

    def in_turns(instance, *arguments, **options):
        if getattr(instance, "is_second", False):
            second_is_in.set()
            assert first_has_ended.wait(LIMIT_S)
        elif getattr(instance, "is_first", False):
            assert second_is_in.wait(LIMIT_S)
        return read(instance, *arguments, **options)

    monkeypatch.setattr(models.Model, "refresh_from_db", in_turns)
    begun = Event()

    def first() -> str:
        again = Dataset.objects.get(pk=row.pk)
        again.is_first = True
        begun.set()
        try:
            again.refresh_from_db()
        finally:
            first_has_ended.set()
            connection.close()
        return again.state

    def second() -> str:
        again = Dataset.objects.get(pk=row.pk)
        assert begun.wait(LIMIT_S)
        again.is_second = True
        try:
            again.refresh_from_db()
        finally:
            connection.close()
        return again.state

    with ThreadPoolExecutor(2) as threads:
        ways = [threads.submit(first), threads.submit(second)]
        assert [way.result() for way in ways] == ["ready", "ready"]


def test_a_state_is_read_again_and_stays_protected(row):
    other = Dataset.objects.get(pk=row.pk)
    other.erase(by="test")
    other.save()
    row.refresh_from_db()
    assert row.state == "deleting"
    with pytest.raises(AttributeError, match="Direct state modification"):
        row.state = "ready"
    row.delete()
    with pytest.raises(Dataset.DoesNotExist):
        other.refresh_from_db()
    assert other.state == "deleting", "what was known stays"
    with pytest.raises(AttributeError, match="Direct state modification"):
        other.state = "ready"


def test_other_fields_are_read_again_without_it_and_deferred_ones_when_they_are_needed(row):
    Dataset.objects.filter(pk=row.pk).update(size=7)
    row.refresh_from_db(fields=["size"])
    assert (row.size, row.state) == (7, "ready")
    part = Dataset.objects.only("name", "state").get(pk=row.pk)
    assert "size" in part.get_deferred_fields()
    assert (part.size, part.state, part.get_deferred_fields() & {"size", "state"}) == (7, "ready", set())
