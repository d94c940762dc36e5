"""Rows that are read by a statement that is built once: as the ORM reads them."""

from __future__ import annotations

import pytest
from django.core.exceptions import FieldDoesNotExist, FieldError
from django.forms.models import model_to_dict

from accounts.models import User
from jobs.models import Job, State
from kernel.database import all_rows, by_key, first_row
from mlp.operators.tests.admin_world import put

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(alice) -> Job:
    row = put(Job, alice, "fit", "running")
    Job.objects.filter(pk=row.pk).update(args=["--lr", "0.1"], env={"A": "é"}, datasets=["photos"])
    return Job.objects.get(pk=row.pk)


def test_all_columns_are_as_the_orm_reads_them(job, alice):
    for row in (job, User.objects.get(pk=alice.pk)):
        read = by_key(type(row), row.pk)
        assert model_to_dict(read) == model_to_dict(row)
        assert {each.attname: getattr(read, each.attname) for each in row._meta.concrete_fields} == {
            each.attname: getattr(row, each.attname) for each in row._meta.concrete_fields
        }
        assert read.get_deferred_fields() == set()
        assert not read._state.adding


def test_other_columns_are_read_when_they_are_asked_for(job):
    read = by_key(Job, job.pk, "name", "env")
    assert (read.name, read.env, "args" in read.get_deferred_fields()) == ("fit", {"A": "é"}, True)
    assert read.args == ["--lr", "0.1"]


def test_without_such_a_row_it_is_none(job):
    assert by_key(Job, job.pk + 1) is None
    assert by_key(User, 0) is None


def test_a_row_is_found_by_what_refers_to_others_and_by_choices(job, alice):
    assert first_row(Job, {"user": alice, "name": "fit", "state": State.RUNNING}) == job
    assert first_row(Job, {"user_id": alice.pk, "name": "fit", "state": State.FINISHED}) is None


def test_all_rows_of_a_user_are_found_the_oldest_first(job, alice):
    later = put(Job, alice, "again", "running")
    read = all_rows(Job, {"user": alice}, "name")
    assert [(row.pk, row.name, "args" in row.get_deferred_fields()) for row in read] == [
        (job.pk, "fit", True),
        (later.pk, "again", True),
    ]
    assert all_rows(Job, {"user": alice, "name": "none"}) == []


def test_what_is_no_value_of_a_column_is_refused_as_by_the_orm(job):
    for wrong in ({"pk": "x"}, {"nothing": 1}):
        errors = [pytest.raises((ValueError, FieldError, FieldDoesNotExist)) for _ in range(2)]
        with errors[0]:
            first_row(Job, wrong)
        with errors[1]:
            Job.objects.filter(**wrong).first()
