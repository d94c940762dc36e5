"""Titles of jobs: any text, shown in place of the name, from which the form makes the name."""

from __future__ import annotations

import csv
import io

import pytest
from django.core import mail

from accounts import delivery
from accounts.models import Delivery, Notice, Preference
from jobs import lifecycle
from jobs.models import Job, Project
from kernel import names
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import markup, visible_text, visitor

pytestmark = pytest.mark.django_db
TITLE = "resnet-50 lr=0.1 #3 <b>"
FORM = {"entry": "train.py", "runtime": "python", "cpu": "1", "gpu": "0", "ram": "512"}


@pytest.fixture
def alice_client(alice, home):
    return visitor(alice)


def test_rest_takes_shows_and_changes_the_title(as_alice, alice, home):
    job = {"name": "fit", "entry": "train.py"}
    created = as_alice.call("post", "users/alice/jobs", {**job, "title": f"  {TITLE} "}).json()
    assert (created["name"], created["title"]) == ("fit", TITLE)
    changed = as_alice.call("put", "users/alice/jobs/fit:edit", {"title": "训练 😀"}).json()
    assert changed["title"] == as_alice.call("get", "users/alice/jobs/fit").json()["title"] == "训练 😀"
    assert as_alice.call("post", "users/alice/jobs/fit:rerun", {}).json()["title"] == "训练 😀"
    assert as_alice.call("put", "users/alice/jobs/fit:edit", {"title": "\u200b "}).json()["title"] == ""


@pytest.mark.parametrize(
    ("title", "refusal"),
    [
        ("x" * 201, "at most 200 characters"),
        ("a\nb", "control characters"),
        ("a\x1b[31mb", "control characters"),
        ("a\u202eb", "control characters"),
        ("a\x00b", "valid text"),
        (7, "must be a string"),
    ],
)
def test_other_titles_are_refused(as_alice, alice, home, title, refusal):
    said = as_alice.refused("post", "users/alice/jobs", {"name": "fit", "entry": "train.py", "title": title})
    assert said.startswith("title: ")
    assert refusal in said


@pytest.mark.parametrize(
    ("title", "name"), [(TITLE, "resnetlrbb"), ("Größe 7", "groe"), ("训练", "job"), ("y" * 60, "y" * 48)]
)
def test_the_form_makes_the_name_from_the_title(alice_client, alice, title, name):
    put(Job, alice, "resnetlrb", "finished")
    answer = alice_client.post("/jobs", {**FORM, "title": title, "name": ""})
    job = Job.objects.order_by("-pk").first()
    assert answer["Location"] == f"/jobs/{job.name}"
    assert (job.title, job.name) == (title, name)
    assert names.name(job.name) == job.name


def test_the_form_sent_twice_creates_one_job_also_without_a_name(alice_client):
    form = {**FORM, "title": "训练", "name": "", "mark": "once"}
    assert [alice_client.post("/jobs", form)["Location"] for _ in range(2)] == ["/jobs/job"] * 2
    assert alice_client.post("/jobs", {**form, "title": "训练 2"})["Location"] == "/jobs/jobb"
    assert alice_client.post("/jobs", {**FORM, "title": "  ", "name": ""}).status_code == 403
    assert Job.objects.count() == 2


def test_pages_show_the_title_as_text_and_the_owner_changes_it(alice_client, alice):
    project = Project.objects.create(user=alice, name="vision")
    put(Job, alice, "fit", "finished")
    Job.objects.update(project=project)
    assert alice_client.post("/jobs/fit/edit", {"title": TITLE})["Location"] == "/jobs/fit"
    for address in ("/jobs/fit", "/jobs", "/index", "/projects/vision", "/compare?job=fit", "/search?q=LR%3D0"):
        assert TITLE in visible_text(alice_client.get(address)), address
    assert "fit" in visible_text(alice_client.get("/jobs/fit"))
    refused = alice_client.post("/jobs/fit/edit", {"title": "x" * 201}, follow=True)
    assert "at most 200 characters" in visible_text(refused)
    assert markup(alice_client.get("/jobs?from=fit")).values["title"] == TITLE


def test_it_is_exported_as_text_for_spreadsheets(alice_client, alice):
    put(Job, alice, "fit", "finished")
    Job.objects.update(title="=1+1")
    text = alice_client.get("/runs/export.csv").getvalue().decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["name"], row["title"]) for row in rows] == [("fit", "'=1+1")]


def test_notices_and_e_mails_name_the_title(alice_client, alice, settings):
    settings.EMAIL_HOST = "mail.example.org"
    Preference.objects.create(user=alice, email="alice@example.org")
    job = put(Job, alice, "fit", "running")
    Job.objects.update(title="two\nlines")  # MLflow's clients may send such a name
    lifecycle.heartbeat(user=alice, name=job.name, state="finished", progress=100, by="alice")
    assert (Notice.objects.get().name, Notice.objects.get().title) == ("fit", "two lines")
    delivery.deliver(Delivery.objects.get().pk)
    assert "two lines" in mail.outbox[0].subject
    assert "two lines" in visible_text(alice_client.get("/notifications"))
