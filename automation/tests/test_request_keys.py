"""Idempotency-Key: a request that is sent again submits nothing a second time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connections
from django.utils import timezone

from accounts import lifecycle as accounts
from automation.models import Firing, PipelineRun
from conftest import Api
from jobs.models import Job
from kernel.models import RequestKey

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks", "home")]

JOB = {"entry": "train.py", "cpu": 0.1, "ram": 100}
CALLS = {
    "a job": ("post", "jobs", {"name": "fit", **JOB}),
    "a job again": ("post", "jobs/first:rerun", {"args": ["--lr", "1"]}),
    "a run of a pipeline": ("post", "pipelines/flow/runs", {}),
    "a schedule by hand": ("put", "schedules/nightly:run", None),
}


@pytest.fixture
def send(as_alice):
    """Return a function that sends one of CALLS with a key and returns the answer; what they begin from is there."""
    for kind, body in {
        "jobs": {"name": "first", **JOB},
        "pipelines": {"name": "flow", "steps": {"a": JOB}},
        "schedules": {"name": "nightly", "cron": "0 0 1 1 *", "job": JOB},
    }.items():
        assert as_alice.call("post", f"users/alice/{kind}", body).status_code == 201

    def call(what: str, key: str, client: Api = as_alice, **fields):
        method, path, body = CALLS[what]
        body = {**body, **fields} if body is not None else None
        return client.call(method, f"users/alice/{path}", body, HTTP_IDEMPOTENCY_KEY=key)

    return call


def created() -> int:
    """Return how many jobs, runs and firings there are."""
    return Job.objects.count() + PipelineRun.objects.count() + Firing.objects.count()


def same(one, other) -> bool:
    """Return whether two answers are of one object, which may have moved on."""
    key = next(name for name in ("number", "at", "name") if name in one.json())
    return one.json()[key] == other.json()[key]


@pytest.mark.parametrize("what", CALLS)
def test_what_is_sent_again_with_its_key_creates_nothing(send, what):
    first = send(what, "k1")
    assert first.status_code in (200, 201), first.content
    before = created()
    again = send(what, "k1")
    assert (again.status_code, same(first, again)) == (first.status_code, True)
    assert created() == before
    if what != "a job":  # whose name is its own
        assert not same(first, send(what, "k2"))
        assert created() > before


@pytest.mark.parametrize("what", CALLS)
def test_what_is_sent_again_while_the_first_is_worked_on_creates_nothing(send, what, alice):
    before, together, token = created(), Barrier(4), accounts.token_of(alice)

    def send_again(_):
        together.wait()
        try:
            return send(what, "k1", Api(token))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(send_again, range(4))
    assert [same(first, other) for other in others] == [True] * 3, [other.content for other in others]
    alone = created() - before
    assert RequestKey.objects.count() == 1
    send(what, "k2")
    assert what == "a job" or created() - before == 2 * alone


def test_a_key_is_of_one_request_and_one_user(send, as_alice, as_bob):
    assert send("a job", "k1").status_code == 201
    refusal = as_alice.refused("post", "users/alice/jobs", {"name": "other", **JOB}, HTTP_IDEMPOTENCY_KEY="k1")
    assert refusal == "Idempotency-Key: another request had this key"
    assert "no such" in as_bob.refused("post", "users/alice/jobs", {"name": "fit", **JOB}, HTTP_IDEMPOTENCY_KEY="k1")
    for wrong in ("k" * 101, "two words"):
        assert send("a job again", wrong).json()["msg"].startswith("Idempotency-Key: must be 1 to 100 visible")


def test_a_request_that_was_refused_can_be_sent_again(send, as_alice):
    key = {"HTTP_IDEMPOTENCY_KEY": "k1"}
    body = {"name": "fit", **JOB, "entry": "later.py"}
    as_alice.refused("post", "users/alice/jobs", body, **key)
    assert RequestKey.objects.count() == 0
    body["entry"] = "train.py"
    assert as_alice.call("post", "users/alice/jobs", body, **key).status_code == 201


def test_a_key_is_forgotten_after_a_day_and_with_its_object(send, as_alice):
    send("a run of a pipeline", "k1")
    RequestKey.objects.update(at=timezone.now() - timedelta(days=1, minutes=1))
    send("a run of a pipeline", "k2")
    assert list(RequestKey.objects.values_list("key", flat=True)) == ["k2"]
    assert as_alice.call("delete", "users/alice/pipelines/flow/runs/2").status_code == 200
    PipelineRun.objects.filter(number=2).delete()
    assert send("a run of a pipeline", "k2").json()["number"] == 3
