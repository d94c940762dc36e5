"""Lines that lack accuracy or loss, and those that say when they were measured."""

from __future__ import annotations

import time

import pytest

from jobs.models import Metrics

from .test_metrics import URL, ingesting, row, running, stream, wait_for  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_was_not_reported_does_not_exist(as_alice, running, ingesting):  # noqa: F811
    """As `report(epoch=…, loss=…)` sends it: a line without an accuracy."""
    part = {"epoch": 0, "loss": 2.0, "progress": 1, "reported": ["loss"]}
    more = {"epoch": 1, "loss": 1.0, "progress": 2, "reported": ["loss"], "user": "alice", "name": "fit"}
    assert as_alice.call("post", URL, [part, more, row(2, accuracy=0.5, loss=0.5)]).status_code == 200
    wait_for(lambda: Metrics.objects.count() == 3)
    stored = as_alice.call("get", "users/alice/jobs/fit/metrics").json()
    assert [(one["accuracy"], one["loss"]) for one in stored] == [(0.5, 0.5), (None, 1.0), (None, 2.0)]
    found = {one["name"]: one for one in as_alice.call("get", "users/alice/jobs/fit/series?points=10").json()}
    assert {name: (one["count"], one["points"]) for name, one in found.items()} == {
        "accuracy": (1, [[2, 0.5, 1]]),
        "loss": (3, [[0, 2.0, 1], [1, 1.0, 1], [2, 0.5, 1]]),
    }


def test_a_job_that_reports_no_accuracy_has_no_series_of_it(as_alice, running, ingesting):  # noqa: F811
    as_alice.call("post", URL, {"epoch": 0, "loss": 2.0, "progress": 1, "reported": ["loss"]})
    as_alice.call("post", URL, {"epoch": 1, "progress": 1, "reported": []})
    wait_for(lambda: Metrics.objects.count() == 2)
    assert [one["name"] for one in as_alice.call("get", "users/alice/jobs/fit/series").json()] == ["loss"]


def test_points_have_the_time_of_their_report(as_alice, running, ingesting):  # noqa: F811
    """Not that of their arrival: what was reported while the platform was away would be at one time."""
    began = int(time.time())
    as_alice.call("post", URL, [row(0, time=began - 20), row(1, time=began - 10.5)])
    wait_for(lambda: Metrics.objects.count() == 2)
    points = as_alice.call("get", "users/alice/jobs/fit/points?name=loss").json()
    assert points[0]["time"] == [began - 20, began - 10.5]
