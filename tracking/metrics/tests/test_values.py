"""Metrics other than the contract's four: over REST and NATS, stored once, read by name (tracking.metrics.series)."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from jobs import lifecycle
from jobs.auth import job_token, message_prefix
from jobs.environment import log_path
from jobs.models import Job, Metrics, Value
from kernel import bus
from mlp.tests.patience import LIMIT_S
from tracking.metrics import recording, series

from .test_metrics import SLEEP, ingesting, publish, row, running, stream, wait_for  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db(transaction=True)

URL = "users/alice/jobs/fit/values"


def numbers(step: int, **values) -> dict:
    return {"step": step, "values": values or {"lr": 0.1}}


def stored(subject: str) -> int:
    """Return how many messages of a subject the stream holds."""

    async def ask(client):
        info = await client.jetstream(timeout=LIMIT_S).stream_info(recording.STREAM.name, subjects_filter=subject)
        return sum((info.state.subjects or {}).values())

    return bus.call(ask)


def record(job, *rows: dict, first: int = 0, sent=None) -> int:
    """Store rows as ingest does; they were sent a second after the job was created, or at `sent`."""
    sent = sent or job.created + timedelta(seconds=1)
    target = recording.values_subject("alice", job.name)
    deliveries = [
        bus.Delivery(target, json.dumps(body).encode(), f"v{first + index}", first + index, sent)
        for index, body in enumerate(rows)
    ]
    return recording.record(deliveries)


INVALID = [  # a body, and the field that is refused
    ({"values": {"lr": 1}}, "step"),
    ({"step": -1, "values": {"lr": 1}}, "step"),
    ({"step": "1", "values": {"lr": 1}}, "step"),
    ({"step": 1}, "values"),
    ({"step": 1, "values": {}}, "values"),
    ({"step": 1, "values": {"lr": "1"}}, "values"),
    ({"step": 1, "values": {"lr": True}}, "values"),
    ({"step": 1, "values": {"": 1}}, "values"),
    ({"step": 1, "values": {"<b>": 1}}, "values"),
    ({"step": 1, "values": {"loss": 1}}, "values"),
    ({"step": 1, "values": {f"n{i}": 1 for i in range(101)}}, "values"),
    ({**numbers(1), "time": -1}, "time"),
    ({**numbers(1), "user": "bob"}, "user"),
    ({**numbers(1), "more": 1}, "more"),
    ([numbers(1), {"step": 1}], "values"),
    ([numbers(1)] * 1001, "body"),
]


class TestReport:
    def test_posted_values_are_stored_and_listed_newest_first(self, as_alice, running, ingesting):  # noqa: F811
        body = [numbers(0, lr=0.1, norm=3), {**numbers(1, lr=0.05), "time": 1700000000.5}]
        assert as_alice.call("post", URL, body).content == b'""'
        wait_for(lambda: Value.objects.count() == 3)
        answer = as_alice.call("get", URL)
        assert answer["X-Total-Count"] == "3"
        newest = answer.json()[0]
        assert newest == {"name": "lr", "step": 1, "value": 0.05, "time": "2023-11-14T22:13:20.500000Z", "attempt": 1}
        assert {entry["value"] for entry in as_alice.call("get", URL + "?name=norm").json()} == {3.0}

    def test_a_repeated_report_counts_once(self, as_alice, running, ingesting):  # noqa: F811
        for _ in range(3):
            as_alice.call("post", URL, [numbers(0), numbers(1)], HTTP_X_MESSAGE_ID="fit:1:run:0")
        as_alice.call("post", URL, [numbers(1), numbers(2)], HTTP_X_MESSAGE_ID="fit:1:run:1")
        as_alice.call("post", "users/alice/job_metrics/fit", row(5), HTTP_X_MESSAGE_ID="fit:1:run:0")
        wait_for(lambda: Metrics.objects.exists() and Value.objects.filter(step=2).exists())
        assert list(Value.objects.values_list("step", flat=True)) == [0, 1, 2]

    def test_a_job_token_reports_for_its_job_only(self, api, submit, until, running, stream):  # noqa: F811
        other = until(submit(SLEEP, name="other"), "running")
        reporter = api(job_token(other))
        assert reporter.refused("post", URL, numbers(0)).startswith("token:")
        assert reporter.refused("post", "users/alice/job_metrics/fit", row(0)).startswith("token:")
        assert reporter.call("post", "users/alice/jobs/other/values", numbers(0)).status_code == 200
        subjects = [recording.values_subject("alice", name) for name in ("fit", "other")]
        assert [stored(subject) for subject in subjects] == [0, 1]

    def test_without_an_id_every_report_counts(self, as_alice, running, ingesting):  # noqa: F811
        for _ in range(3):
            as_alice.call("post", URL, numbers(0))
        wait_for(lambda: Value.objects.count() == 3)

    def test_one_invalid_element_refuses_the_whole_request(self, as_alice, running, stream):  # noqa: F811
        wrong = [(body, field, as_alice.refused("post", URL, body)) for body, field in INVALID]
        assert [(field, said) for _body, field, said in wrong if not said.startswith(f"{field}:")] == []

    def test_values_can_be_published_to_nats_and_invalid_messages_are_dropped(self, running, ingesting):  # noqa: F811
        target = recording.values_subject("alice", "fit")
        for body in (b"{", json.dumps(row(0)).encode(), json.dumps(numbers(1) | {"name": "other"}).encode()):
            publish(target, body)
        publish("job_metrics.alice.fit.more", json.dumps(numbers(1)).encode())
        publish(target, json.dumps(numbers(7)).encode())
        wait_for(Value.objects.exists)
        assert list(Value.objects.values_list("step", flat=True)) == [7]
        assert not Metrics.objects.exists()

    def test_nothing_is_stored_for_a_job_that_is_not_running(self, running, as_alice, stream):  # noqa: F811
        lifecycle.cancel(user=running.user, name="fit", by="alice")
        assert as_alice.call("post", URL, numbers(0)).status_code == 200
        assert record(running, numbers(0), sent=timezone.now()) == 0
        assert not Value.objects.exists()

    def test_a_redelivered_batch_is_stored_once(self, running, stream):  # noqa: F811
        record(running, numbers(0), numbers(1))
        record(running, numbers(0), numbers(1))
        assert Value.objects.count() == 2

    def test_the_number_of_names_is_limited(self, running, stream, monkeypatch):  # noqa: F811
        monkeypatch.setattr(series, "MAX_NAMES", 3)
        record(running, *(numbers(step, **{f"n{step}": 1}) for step in range(5)), numbers(9, n0=2))
        assert set(Value.objects.values_list("name", flat=True)) == {"n0", "n1", "n2"}
        assert Value.objects.filter(name="n0", step=9).exists()

    def test_metrics_and_values_of_one_batch_are_stored_together(self, running, stream):  # noqa: F811
        sent = running.created + timedelta(seconds=1)
        mixed = [("job_metrics.alice.fit", row(0)), (recording.values_subject("alice", "fit"), numbers(0))]
        batch = [bus.Delivery(to, json.dumps(body).encode(), f"m{i}", i, sent) for i, (to, body) in enumerate(mixed)]
        assert recording.record(batch) == 2
        assert Metrics.objects.count() == Value.objects.count() == 1


class TestSeries:
    def test_series_have_their_range_and_thinned_points(self, as_alice, running, stream):  # noqa: F811
        record(running, *(numbers(step, lr=1 / (step + 1), norm=step) for step in range(100)))
        sent = running.created + timedelta(seconds=1)
        recording.record([bus.Delivery("job_metrics.alice.fit", json.dumps(row(0)).encode(), "m", 0, sent)])
        series = {
            entry["name"]: entry for entry in as_alice.call("get", "users/alice/jobs/fit/series?points=20").json()
        }
        assert list(series) == ["accuracy", "loss", "lr", "norm"]
        assert {key: series["norm"][key] for key in ("count", "last", "min", "max")} == {
            "count": 100,
            "last": 99.0,
            "min": 0.0,
            "max": 99.0,
        }
        steps = [point[0] for point in series["norm"]["points"]]
        assert steps == sorted(steps)
        assert steps[0] == 0
        assert len(steps) == 20
        assert series["loss"]["points"] == [[0.0, 1.0, 1.0]]

    def test_without_points_only_the_statistics_are_returned(self, as_alice, running, stream):  # noqa: F811
        record(running, numbers(0))
        assert as_alice.call("get", "users/alice/jobs/fit/series").json() == [
            {"name": "lr", "count": 1, "last": 0.1, "min": 0.1, "max": 0.1, "points": []}
        ]

    def test_another_users_series_are_not_found(self, as_bob, running, stream):  # noqa: F811
        assert "job" in as_bob.refused("get", "users/alice/jobs/fit/series")
        assert "job" in as_bob.refused("get", URL)


@pytest.mark.usefixtures("ingesting")
def test_another_job_cannot_make_a_report_a_repetition(as_alice, request):
    """JetStream compares the ids of all jobs. A job's number and the content of its reports do not reveal them."""
    job = request.getfixturevalue("running")
    for kind in ("", "values."):
        publish("job_metrics.bob.other", b"{}", f"{job.pk}.{kind}fit:1:run:0")
        publish("job_metrics.bob.other", b"{}", f"{job.pk}..{kind}fit:1:run:0")
    as_alice.call("post", "users/alice/job_metrics/fit", row(0), HTTP_X_MESSAGE_ID="fit:1:run:0")
    wait_for(Metrics.objects.exists)
    values = {"step": 1, "values": {"lr": 0.1}}
    as_alice.call("post", URL, values, HTTP_X_MESSAGE_ID="fit:1:run:0")
    wait_for(Value.objects.exists)


def test_a_script_is_given_a_prefix_that_no_other_job_knows(submit, until):
    code = "import os\nprint(os.environ['MLP_NATS_ID_PREFIX'])"
    job = until(submit(code, name="second"), "finished")
    assert Path(log_path(job)).read_text().strip() == message_prefix(job)
    assert message_prefix(job).partition(".")[0] == str(job.pk)
    assert len(message_prefix(job)) > 24
    assert message_prefix(job) not in [message_prefix(Job(pk=job.pk)), f"{job.pk}.."]
