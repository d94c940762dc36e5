"""Runs with very many metrics and points: every answer is bounded, and what is left out can be found."""

from __future__ import annotations

import re

import pytest

from jobs.models import Block, Job, Value
from jobs.summaries import metrics as summaries
from mlp.templatetags import charts
from tracking.compare import rows
from tracking.metrics import blocks, series
from tracking.mlflow import metrics

from .test_tracking import point, start

pytestmark = pytest.mark.django_db


def names(page: str) -> list[str]:
    """Return the metrics that have charts on a page."""
    return re.findall(r'data-names="\[&quot;(.+?)&quot;\]"', page)


def pages(mlflow, run: str):
    """Yield the pages of a history."""
    token = ""
    while True:
        page = mlflow.call("get", "metrics/get-history", run_id=run, metric_key="loss", page_token=token)
        yield page["metrics"]
        token = page.get("next_page_token")
        if not token:
            return


@pytest.fixture
def many(mlflow):
    """Three runs with metrics from m00 to m11, and their ids."""
    runs = [start(mlflow, run_name=name) for name in ("one", "two", "three")]
    for run in runs:
        mlflow.call("post", "runs/log-batch", run_id=run, metrics=[point(f"m{key:02}") for key in range(12)])
    return runs


def test_a_page_of_runs_with_many_metrics_ends_earlier(mlflow, as_alice, many, monkeypatch):
    monkeypatch.setattr(summaries, "MAX_AT_ONCE", 30)
    run_ids, token = [], ""
    for size in (2, 1):
        answer = mlflow.call("post", "runs/search", experiment_ids=["0"], page_token=token)
        assert [len(run["data"]["metrics"]) for run in answer["runs"]] == [12] * size
        run_ids += [run["info"]["run_id"] for run in answer["runs"]]
        token = answer.get("next_page_token", "")
    assert (run_ids, token) == (many[::-1], "")
    first = as_alice.call("get", "users/alice/runs").json()
    second = as_alice.call("get", f"users/alice/runs?after={first['next']}").json()
    assert [[run["title"] for run in page["runs"]] for page in (first, second)] == [["three", "two"], ["one"]]
    assert (first["total"], second["next"]) == (3, "")


@pytest.mark.long
def test_a_board_has_the_first_charts_and_finds_the_others(client, alice, as_alice, many, monkeypatch):
    monkeypatch.setattr(charts, "MAX_CHARTS", 5)
    client.force_login(alice)
    one, two = (Job.objects.get(title=title).name for title in ("one", "two"))
    page = client.get(f"/jobs/{one}").content.decode()
    assert names(page) == [f"m{key:02}" for key in range(5)]
    assert "Shown: 5 of 12" in page
    page = client.get(f"/jobs/{one}?metrics=M1").content.decode()
    assert names(page) == ["m10", "m11"]
    page = client.get(f"/compare?job={one}&job={two}&metrics=1").content.decode()
    assert names(page) == ["m01", "m10", "m11"]
    assert f'<input type="hidden" name="job" value="{two}">' in page
    points = as_alice.call("get", f"users/alice/jobs/{one}/points?find=M1&limit=1")
    assert ([entry["name"] for entry in points.json()], points["X-Total-Count"]) == (["m10"], "2")
    listed = as_alice.call("get", f"users/alice/jobs/{one}/series?limit=3&offset=10")
    assert ([entry["name"] for entry in listed.json()], listed["X-Total-Count"]) == (["m10", "m11"], "12")


def test_a_comparison_reads_a_bounded_number_of_metrics(client, alice, many, monkeypatch):
    monkeypatch.setattr(rows, "MAX_NAMES", 4)
    names_by_job = rows.summaries_of(list(Job.objects.all()))
    assert {tuple(listed_names) for listed_names in names_by_job.values()} == {("m00", "m01", "m02", "m03")}
    client.force_login(alice)
    query = "&".join(f"job={name}" for name in Job.objects.values_list("name", flat=True))
    assert client.get(f"/compare?{query}").context["table"].cut


def test_a_page_follows_a_bounded_number_of_series(mlflow, many):
    job = Job.objects.get(run_id=many[0])
    assert series.names_of(job.pk, 3) == {"m00", "m01", "m02"}
    assert len(series.names_of(job.pk)) == 12


def test_a_long_history_is_read_by_pages_and_its_blocks_are_made(mlflow, monkeypatch):
    run = start(mlflow)
    for first in range(0, blocks.SIZE + 1000, 1000):
        batch = [point(step=step) for step in range(first, first + 1000)]
        mlflow.call("post", "runs/log-batch", run_id=run, metrics=batch)
    assert Block.objects.count() == 1
    monkeypatch.setattr(metrics, "HISTORY", 4000)
    steps = [point["step"] for page in pages(mlflow, run) for point in page]
    assert steps == list(range(blocks.SIZE // 1000 * 1000 + 2000))
    assert Value.objects.count() == len(steps)
