"""What the table of runs says of a filter that can be read in two ways."""

from __future__ import annotations

import pytest

from jobs.models import RunMetric, RunParam

pytestmark = pytest.mark.django_db


def test_the_page_says_what_a_name_is_read_as_that_is_a_metric_and_an_argument(client, alice, runs):
    client.force_login(alice)
    RunMetric.objects.create(job=runs["c"], user=alice, name="lr", last=3, min=3, max=3, count=1, step=1)
    assert "<code>lr</code> is read as the argument; <code>metric.lr</code> is the metric." in (
        client.get("/jobs", {"filter": "lr = 0.1"}).content.decode()
    )
    RunParam.objects.create(job=runs["d"], user=alice, name="loss", text="mse")
    assert "<code>loss</code> is read as the metric; <code>param.loss</code> is the argument." in (
        client.get("/jobs", {"filter": "loss < 0.1"}).content.decode()
    )
    for plain in ("metric.lr = 3", "max(loss) < 1", "batch-size = 8", ""):
        assert "is read as the" not in client.get("/jobs", {"filter": plain}).content.decode()
