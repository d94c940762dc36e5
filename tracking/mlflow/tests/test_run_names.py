"""Names of runs that clients report, beside those of jobs."""

from __future__ import annotations

import pytest

from jobs.models import Job

from .test_tracking import start

pytestmark = pytest.mark.django_db


def test_runs_take_no_name_that_a_job_may_want(mlflow, as_alice, home, client, alice):
    before = start(mlflow, run_name="fit")
    response = as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py"})
    assert response.status_code == 201, response.content
    after = start(mlflow, run_name="fit")
    assert as_alice.call("get", "users/alice/jobs/fit").json()["state"] == "creating"
    client.force_login(alice)
    for run in (before, after):
        job = Job.objects.get(run_id=run)
        page = client.get(f"/jobs/{job.name}").content.decode()
        assert run in page
        assert job.title == "fit"
    assert len({Job.objects.get(run_id=run).name for run in (before, after)} | {"fit"}) == 3


@pytest.mark.parametrize(("title", "letters"), [("Größe 7", "groe"), ("7", "run"), ("x" * 60, "x" * 40)])
def test_a_run_is_named_by_the_letters_of_its_title_and_of_its_id(mlflow, title, letters):
    name = Job.objects.get(run_id=start(mlflow, run_name=title)).name
    assert name.startswith(letters)
    assert len(name) == len(letters) + 10
    assert name.isascii()
    assert name.isalpha()
