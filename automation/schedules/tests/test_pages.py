"""The pages of schedules: what the forms send, and what is shown of it."""

from __future__ import annotations

import pytest

from automation.models import Firing, Schedule
from automation.schedules import firing
from jobs.models import Job
from mlp.tests.tiers import few

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks", "home")]

FORM = {
    "name": "nightly", "entry": "train.py", "cpu": "0.1", "gpu": "0", "ram": "100", "cron": "30 6 * * 1-5",
    "time_zone": "Europe/Berlin", "overlap": "queue", "catch_up": "all", "code": "kept",
}  # fmt: skip
YAML = """
name: nightly
event: {on: dataset_ready, name: sales}
job: {entry: train.py, cpu: 0.1, ram: 100}
"""


@pytest.fixture
def visitor(client, alice):
    client.force_login(alice)
    return client


@pytest.fixture
def nightly(visitor) -> Schedule:
    assert visitor.post("/schedules", FORM).status_code == 302
    return Schedule.objects.get()


def do(visitor, verb: str, **fields) -> str:
    return visitor.post("/schedules/nightly/change", {"do": verb, **fields}, follow=True).content.decode()


def test_the_form_makes_a_schedule(nightly, visitor):
    values = (nightly.cron, nightly.time_zone, nightly.overlap, nightly.catch_up, nightly.snapshot is not None)
    assert values == ("30 6 * * 1-5", "Europe/Berlin", "queue", "all", True)
    assert (nightly.spec["entry"], nightly.spec["cpu"]) == ("train.py", 0.1)
    shown = visitor.get("/schedules").content.decode()
    assert "/schedules/nightly" in shown
    assert "30 6 * * 1-5" in shown


def test_so_does_yaml(visitor):
    assert visitor.post("/schedules", {"yaml": YAML}).status_code == 302
    assert Schedule.objects.get().event == {"on": "dataset_ready", "name": "sales"}
    assert "sales" in visitor.get("/schedules/nightly").content.decode()


def test_an_event_of_the_form(visitor):
    visitor.post("/schedules", {**FORM, "on": "model_registered", "event_name": "churn"})
    row = Schedule.objects.get()
    assert (row.cron, row.event) == ("", {"on": "model_registered", "name": "churn"})


@pytest.mark.parametrize(
    ("fields", "words"),
    few(
        [
            ({"cron": "61 * * * *"}, "is not valid"),
            ({"time_zone": "Mars/Base"}, "is not a time zone"),
            ({"entry": "none.py"}, "none.py"),
            ({"on": "job_finished"}, "requires the name of a job"),
            ({"yaml": "name: ["}, "yaml"),
        ],
        2,
    ),
)
def test_what_is_wrong_is_said_at_its_field(visitor, fields, words):
    answer = visitor.post("/schedules", {**FORM, **fields})
    assert answer.status_code == 403
    shown = answer.content.decode()
    assert words in shown
    assert 'aria-invalid="true"' in shown
    assert not Schedule.objects.exists()


def test_its_page_has_the_next_times_and_what_it_has_done(nightly, visitor):
    firing.run(nightly.next_at)
    shown = visitor.get("/schedules/nightly").content.decode()
    assert "/jobs/nightlyaaa" in shown
    assert shown.count("<time") >= 5


def test_each_button_does_what_it_says(nightly, visitor):
    do(visitor, "run")
    assert (Job.objects.count(), Firing.objects.get().state) == (1, "submitted")
    for verb, state in (("pause", "paused"), ("resume", "active")):
        do(visitor, verb)
        assert Schedule.objects.get().state == state
    assert "already active" in do(visitor, "resume")
    do(visitor, "edit", cron="15 3 * * *", time_zone="UTC", overlap="skip", catch_up="none")
    row = Schedule.objects.get()
    assert (row.cron, row.time_zone, row.overlap, row.catch_up) == ("15 3 * * *", "UTC", "skip", "none")
    assert "is not valid" in do(visitor, "edit", cron="99 3 * * *", time_zone="UTC")
    do(visitor, "delete")
    assert not Schedule.objects.exists()
    assert Job.objects.count() == 1


def test_a_copy_begins_with_the_yaml_of_the_first(nightly, visitor):
    shown = visitor.get("/schedules?like=nightly").content.decode()
    assert "30 6 * * 1-5" in shown
    assert "time_zone: Europe/Berlin" in shown


def test_others_see_nothing_of_it(nightly, client, bob):
    client.force_login(bob)
    assert "nightly" not in client.get("/schedules").content.decode()
    assert client.get("/schedules/nightly").status_code == 404
    assert client.post("/schedules/nightly/change", {"do": "delete"}).status_code == 404
    assert Schedule.objects.exists()
