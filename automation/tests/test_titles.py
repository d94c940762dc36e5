"""Titles of sweeps, schedules and pipelines, and of the jobs that they submit."""

from __future__ import annotations

import pytest

from automation.models import Pipeline, Schedule, Sweep
from automation.schedules import firing
from jobs.models import Job
from mlp.tests.page_world import markup, visible_text, visitor

pytestmark = pytest.mark.django_db(transaction=True)
TITLE = "Nightly <b> 训练"
JOB = {"entry": "train.py", "cpu": 0.1, "ram": 100}
SWEEP = {
    "name": "tune", "title": TITLE, "job": JOB, "space": {"lr": {"type": "float", "low": 0.1, "high": 1}},
    "objective": {"metric": "loss", "direction": "minimize"}, "trials": 1,
}  # fmt: skip
BODIES = {
    "sweeps": SWEEP,
    "schedules": {"name": "tune", "title": TITLE, "job": JOB, "cron": "0 3 * * *"},
    "pipelines": {"name": "tune", "title": TITLE, "steps": {"train": JOB}},
}
MODELS = {"sweeps": Sweep, "schedules": Schedule, "pipelines": Pipeline}


@pytest.fixture
def alice_client(alice, home):
    (home / "train.py").write_text("print(1)")
    return visitor(alice)


@pytest.mark.parametrize("kind", BODIES)
def test_they_are_set_by_rest_shown_and_changed(alice_client, as_alice, kind):
    address, page = f"users/alice/{kind}", f"/{kind}/tune"
    assert as_alice.call("post", address, BODIES[kind]).json()["title"] == TITLE
    for shown in (page, f"/{kind}"):
        assert TITLE in visible_text(alice_client.get(shown)), shown
    assert markup(alice_client.get(page)).values["title"] == TITLE
    assert as_alice.call("put", f"{address}/tune:edit", {"title": "second"}).json()["title"] == "second"
    assert alice_client.post(f"{page}/title", {"title": "third"})["Location"] == page
    assert MODELS[kind].objects.get().title == "third"
    assert as_alice.refused("put", f"{address}/tune:edit", {"title": "x" * 201}).startswith("title: ")


def test_a_pipeline_that_is_replaced_keeps_its_title(alice_client, as_alice):
    as_alice.call("post", "users/alice/pipelines", BODIES["pipelines"])
    assert as_alice.call("put", "users/alice/pipelines/tune", {"steps": {"train": JOB}}).json()["title"] == TITLE
    text = "name: tune\ntitle: other\nsteps: {train: {entry: train.py}}"
    alice_client.post("/pipelines/tune/change", {"do": "edit", "yaml": text})
    assert Pipeline.objects.get().title == "other"


def test_what_a_schedule_submits_has_its_title_and_number(alice_client, as_alice):
    as_alice.call("post", "users/alice/schedules", BODIES["schedules"])
    firing.by_hand(Schedule.objects.get())
    assert Job.objects.get().title == f"{TITLE} #0"


def test_the_forms_make_the_names(alice_client):
    form = {"title": TITLE, "name": "", "entry": "train.py", "cpu": "0.1", "gpu": "0", "ram": "100"}
    assert alice_client.post("/schedules", {**form, "cron": "0 3 * * *"})["Location"] == "/schedules/nightlyb"
    sweep = {**form, "title": "训练", "space": "lr: {type: float, low: 0.1, high: 1}", "trials": "1"}
    sweep |= {"metric": "loss", "direction": "minimize"}
    assert alice_client.post("/sweeps", sweep)["Location"] == "/sweeps/sweep"
    assert "title: 训练" in visible_text(alice_client.get("/sweeps?like=sweep"))


def test_a_form_without_fields_is_refused(alice_client):
    for page in ("/schedules", "/sweeps"):
        assert alice_client.post(page, {}).status_code == 403, page
