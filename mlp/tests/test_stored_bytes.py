"""What is stored of a user is counted as it changes, and once where an older release stored it."""

from __future__ import annotations

import pytest
from django.db import connection

from automation.models import Pipeline, Sweep
from jobs.models import Job, RunParam, View
from kernel import stored
from mlp.tests.attack.test_tokens import attacked
from models_app.models import RegisteredModel

from .test_database_limit import counted_anew

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def attacked_files(keep_files):
    return keep_files(attacked)


def test_every_change_counts_and_what_is_deleted_is_given_back(attacked_files, alice):
    attacked_files()
    full = stored.used(alice.pk)
    assert full == counted_anew(alice) > 10_000
    Job.objects.filter(user=alice).update(notes="y" * 5000, values_kept=7)
    assert stored.used(alice.pk) == counted_anew(alice) > full
    with connection.cursor() as cursor:
        cursor.execute(stored.COLLAPSE, [0])
    assert stored.used(alice.pk) == counted_anew(alice)
    before = stored.used(alice.pk)
    for model in (RegisteredModel, RunParam, Sweep, Pipeline, View):
        model.objects.filter(user=alice).delete()
    assert stored.used(alice.pk) == counted_anew(alice) < before


def test_rows_of_an_older_release_are_counted_once(attacked_files, alice):
    attacked_files()
    full = stored.used(alice.pk)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("DROP TRIGGER stored_insert ON job")
        cursor.execute("DELETE FROM stored_bytes")
    stored.make_triggers()
    stored.make_triggers()
    assert stored.used(alice.pk) == full
