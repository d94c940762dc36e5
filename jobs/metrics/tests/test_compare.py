"""The comparison of jobs: the page and the CSV file."""

from __future__ import annotations

import csv
import io
import re

import pytest
from django.utils import timezone

from jobs.models import Job, Metrics, Value

pytestmark = pytest.mark.django_db


@pytest.fixture
def make(alice):
    def job(name: str, user=alice, **fields) -> Job:
        made = Job.objects.create(user=user, tenant=user.tenant, name=name, entry="train.py", **fields)
        Metrics.objects.create(job=made, seq=1, epoch=0, accuracy=0.25, loss=2, progress=10, msg_id="m")
        Value.objects.create(job=made, name="learning_rate", step=3, value=0.0001, at=timezone.now(), msg_id="v")
        return made

    return job


@pytest.fixture
def get(client, alice):
    client.force_login(alice)
    return client.get


def test_settings_that_differ_come_first_and_last_values_are_shown(get, make):
    make("one", args=["--lr", "1"])
    make("two", args=["--lr", "2"])
    text = get("/compare?job=one&job=two").content.decode()
    assert text.index("--lr 2") < text.index("train.py")
    assert len(re.findall(r">\s*1\.00e-04\s*<", text)) == 2
    assert text.index('data-compared="one"') < text.index('data-compared="two"')


def test_without_a_selection_it_offers_jobs(get, make):
    make("one")
    text = get("/compare").content.decode()
    assert 'value="one"' in text
    assert "data-compare " not in text


def test_another_users_job_is_not_found(get, make, bob):
    make("theirs", user=bob)
    assert "data-compared" not in get("/compare?job=theirs&job=none&job=%00").content.decode()
    assert get("/compare.csv?job=theirs").status_code == 404


def test_at_most_ten_jobs_are_compared(get, make):
    for letter in "abcdefghijkl":
        make(letter)
    query = "&".join(f"job={letter}" for letter in "abcdefghijkl")
    assert get(f"/compare?{query}").content.decode().count("data-compared=") == 10


def test_the_csv_has_every_reported_number(get, make):
    make("one")
    make("two")
    answer = get("/compare.csv?job=one&job=two")
    assert answer["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert {(row["job"], row["series"], row["step"], row["value"]) for row in rows} == {
        (job, *rest)
        for job in ("one", "two")
        for rest in (("accuracy", "0", "0.25"), ("loss", "0", "2.0"), ("learning_rate", "3", "0.0001"))
    }


def test_user_input_stays_text_in_the_csv(get, make):
    make("one", args=["<script>alert(1)</script>"], env={"A": "<img src=x>"})
    text = get("/compare?job=one").content.decode()
    assert "<script>alert" not in text
    assert "<img src=x>" not in text


def test_anonymous_users_are_redirected_to_login(client):
    assert client.get("/compare").status_code == client.get("/compare.csv").status_code == 302
