"""What keeps the table of runs fast with 100,000 of them: states are counted by an index, groups read a bounded number
of runs. The times are measured by bench/runs.py.
"""

from __future__ import annotations

import pytest
from django.db import connection
from django.http import QueryDict

from jobs import states
from jobs.models import Job, State
from kernel.outcomes import Outcome
from tracking.runs import groups
from tracking.runs.table import Table

pytestmark = pytest.mark.django_db


CONSTRAINTS = "SELECT conname FROM pg_constraint WHERE conrelid = 'job'::regclass AND contype IN ('p', 'u')"
OTHERS = """
SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'job'::regclass AND indexrelid::regclass::text != %s
"""


def plan(queryset, index: str) -> str:
    """Return how the database reads the rows with this index only: for so few rows all indexes cost the same."""
    with connection.cursor() as cursor:
        for way in ("seqscan", "bitmapscan", "sort"):
            cursor.execute(f"SET LOCAL enable_{way} = off")
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # no trigger may be left to fire when a table is altered
        cursor.execute(CONSTRAINTS)
        for (name,) in cursor.fetchall():
            cursor.execute(f"ALTER TABLE job DROP CONSTRAINT {name} CASCADE")
        cursor.execute(OTHERS, [index])
        for (name,) in cursor.fetchall():
            cursor.execute(f"DROP INDEX {name}")
    return queryset.explain()


@pytest.mark.parametrize(("in_project", "index"), [(False, "job_by_state"), (True, "job_project_state")])
def test_runs_are_counted_by_an_index_alone(alice, runs, in_project, index):
    table = Table(alice, QueryDict(""), runs["a"].project if in_project else None)
    counted = table.unstated.order_by().values_list("display_state")
    assert table.counts == (
        {"finished": 2} if in_project else {"cancelled": 1, "failed": 1, "finished": 2, "queued": 1}
    )
    assert f"Index Only Scan using {index}" in plan(counted, index)


def test_the_newest_in_a_state_are_found_in_their_order(alice, runs):
    query_plan = plan(Table(alice, QueryDict("state=finished")).runs.order_by("-pk").values("pk")[:50], "job_by_state")
    assert "Index Only Scan using job_by_state" in query_plan
    assert "Sort" not in query_plan


@pytest.mark.parametrize("expression", ["lr = 0.01", "lr < 1", "lr > 0.05"])
def test_an_argument_that_is_a_number_is_found_by_the_index(alice, runs, expression):
    query = QueryDict(mutable=True)
    query["filter"] = expression
    assert "place" in str(Table(alice, query).runs.query)


def test_the_database_names_states_as_pages_do(alice, runs):
    job = Job.objects.filter(pk=runs["e"].pk)
    for state in State.values:
        for reserved in (False, True):
            for outcome in ("", *Outcome.values):
                job.update(state=state, reserved=reserved, outcome=outcome)
                row = job.get()
                assert row.display_state == states.word(row), (state, reserved, outcome)


def test_groups_of_very_many_runs_have_the_metrics_of_the_newest(client, alice, runs, monkeypatch):
    monkeypatch.setattr(groups, "AVERAGED", 4)
    client.force_login(alice)
    page = client.get("/jobs?by=script&col=last:loss").content.decode()
    assert "newest 4 runs" in page
    rows = groups.groups_of(Table(alice, QueryDict("by=script&col=last:loss"))).rows
    assert [(row.value, row.count) for row in rows] == [("train.py", 4), ("eval.py", 1)]
    assert rows[1].cells == [(0.5, 0.5)]
    monkeypatch.undo()
    assert "newest 4 runs" not in client.get("/jobs?by=script&col=last:loss").content.decode()
