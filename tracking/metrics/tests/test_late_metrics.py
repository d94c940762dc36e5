"""Metrics that were acknowledged while a job ran are kept, however late ingest reads them; here ingest is paused."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from nats.js.api import ConsumerConfig

from accounts import lifecycle as accounts
from jobs import lifecycle
from jobs.models import Job, Metrics, Value
from kernel import bus
from mlp.tests.links import eventually
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from tracking.metrics import recording

from .test_metrics import SLEEP, URL, ingesting, publish, row, running, socket, stream, wait_for  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db(transaction=True)

JOB = "users/alice/jobs/fit"
SUBJECT = "job_metrics.alice.fit"


def epochs() -> list[int]:
    return list(Metrics.objects.values_list("epoch", flat=True))


@pytest.fixture
def ingest_now(stream, request, alice):  # noqa: F811
    """Start ingest; return when it has processed everything that was sent before."""

    def begin() -> None:
        request.getfixturevalue("ingesting")
        for subject in (SUBJECT, f"{SUBJECT}.values"):
            wait_for(lambda: bus.is_consumed(recording.STREAM, recording.DURABLE, subject, alice.created))  # noqa: B023

    return begin


ENDS = {
    "finished": lambda api: api.call("put", f"{JOB}:heartbeat", {"state": "finished", "progress": 100}),
    "error": lambda api: api.call("put", f"{JOB}:heartbeat", {"state": "error", "progress": 7}),
    "cancelled": lambda api: api.call("put", f"{JOB}:cancel"),
}


@pytest.mark.parametrize("end", few(ENDS.values(), 1), ids=ENDS)
def test_only_reports_sent_before_the_end_are_stored(
    as_alice,
    running,  # noqa: F811
    ingest_now,
    end,
):
    assert as_alice.call("post", URL, [row(0), row(1)]).status_code == 200
    numbers = {"step": 3, "values": {"lr": 0.5}}
    assert as_alice.call("post", f"{JOB}/values", numbers).status_code == 200
    assert end(as_alice).status_code == 200
    assert as_alice.call("post", URL, row(2)).status_code == 200
    publish(SUBJECT, json.dumps(row(3)).encode())
    publish(f"{SUBJECT}.values", json.dumps(numbers).encode())
    before = as_alice.call("get", JOB).json()
    ingest_now()
    after = as_alice.call("get", JOB).json()
    assert {**before, "progress": 0} == {**after, "progress": 0}
    assert list(Metrics.objects.values_list("seq", "epoch")) == [(1, 0), (2, 1)]
    assert Value.objects.count() == 1


def test_a_late_final_row_still_ends_the_metrics(as_alice, running, ingest_now):  # noqa: F811
    as_alice.call("post", URL, [row(0), row(1, progress=100), row(2)])
    ENDS["finished"](as_alice)
    ingest_now()
    assert epochs() == [0, 1]


def test_finish_keeps_reports_sent_before_it(as_alice, as_staff, running, ingest_now):  # noqa: F811
    as_alice.call("post", URL, row(0))
    as_staff.call("put", f"{URL}:finish")
    as_alice.call("post", URL, row(1))
    ENDS["cancelled"](as_alice)
    ingest_now()
    assert epochs() == [0]


def test_delete_also_removes_reports_in_flight(as_alice, as_staff, running, ingest_now):  # noqa: F811
    as_alice.call("post", URL, row(0))
    as_staff.call("put", f"{URL}:delete")
    as_alice.call("post", URL, row(1))
    ingest_now()
    assert epochs() == [1]


def test_rows_of_a_deleted_job_are_not_stored_for_the_next(as_alice, running, ingest_now, submit, until, tasks):  # noqa: F811
    as_alice.call("post", URL, [row(0), row(1)])
    ENDS["cancelled"](as_alice)
    until(running, "error")
    as_alice.call("delete", JOB)
    tasks.run()
    until(submit(SLEEP), "running")
    as_alice.call("post", URL, row(2))
    ingest_now()
    assert epochs() == [2]


def test_rows_of_a_deleted_job_are_dropped(as_alice, running, ingest_now, until):  # noqa: F811
    as_alice.call("post", URL, row(0))
    ENDS["cancelled"](as_alice)
    as_alice.call("delete", JOB)
    ingest_now()
    assert epochs() == []


def test_a_job_that_never_ran_has_no_metrics(as_alice, submit, ingest_now):
    until_it_is_made = submit(SLEEP)
    publish(SUBJECT, json.dumps(row(0)).encode())
    ENDS["cancelled"](as_alice)
    ingest_now()
    assert epochs() == []
    assert until_it_is_made.attempt == 0


def test_late_rows_belong_to_their_own_attempt(as_alice, submit, until, ingest_now, monkeypatch):
    """Including its final row, which does not close the next attempt's metrics."""
    monkeypatch.setattr("jobs.lifecycle.BACKOFF_S", (0,))
    job = until(submit(SLEEP, retries=1), "running")
    as_alice.call("post", URL, [row(0), row(1, progress=-1), row(2)])
    lifecycle.end_attempt(job.pk, job.run_name, "exit code 1", by="test")
    until(job, "running")
    as_alice.call("post", URL, [row(0, loss=9.0), row(1)])
    ENDS["cancelled"](as_alice)
    ingest_now()
    rows = Metrics.objects.values_list("epoch", "attempt")
    assert list(rows) == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_a_redelivered_batch_with_the_final_row_is_stored(running):  # noqa: F811
    """The database failed at the first batch, and was available for the second."""

    def delivery(epoch: int, **fields) -> bus.Delivery:
        sent = running.created + timedelta(seconds=1 + epoch)
        return bus.Delivery(SUBJECT, json.dumps(row(epoch, **fields)).encode(), f"m{epoch}", epoch, sent)

    recording.record([delivery(1, progress=100), delivery(2)])
    recording.record([delivery(0), delivery(1, progress=100)])
    assert epochs() == [1, 0]


async def take_and_die(count: int) -> None:
    """Take messages as an ingest that is killed before it has stored them; they come again after two seconds."""
    client = await bus.connect()
    config = ConsumerConfig(ack_wait=2)
    name = recording.STREAM.name
    pull = await client.jetstream(timeout=LIMIT_S).pull_subscribe("", recording.DURABLE, stream=name, config=config)
    while count:
        count -= len(await pull.fetch(count, timeout=LIMIT_S))
    await client.close()


@pytest.mark.long
def test_what_a_killed_ingest_has_taken_is_stored_before_later_reports(running, stream, ingest_now):  # noqa: F811
    """The server holds it back for a while, and delivers the later ones meanwhile."""
    for epoch in (0, 1):
        publish(SUBJECT, json.dumps(row(epoch)).encode())
    asyncio.run(take_and_die(2))
    for epoch in (2, 3):
        publish(SUBJECT, json.dumps(row(epoch)).encode())
    ingest_now()
    assert list(Metrics.objects.order_by("seq").values_list("epoch", flat=True)) == [0, 1, 2, 3]


def set_back(job: Job, message_id: str) -> bus.Delivery:
    """Return a report of the job whose time is before its creation: the clock was set back an hour meanwhile."""
    return bus.Delivery(SUBJECT, json.dumps(row(0)).encode(), message_id, 1, job.created - timedelta(hours=1))


@pytest.mark.parametrize("ended", few([False, True], 1))
def test_reports_are_stored_although_the_clock_was_set_back(as_alice, running, until, ended):  # noqa: F811
    if ended:
        ENDS["cancelled"](as_alice)
        Job.objects.update(ended=running.created - timedelta(minutes=59))
    assert recording.record([set_back(running, "any"), set_back(running, f"{running.pk}.run:1")]) == 2
    if ended:
        Job.objects.update(ended=running.created - timedelta(minutes=61))
        assert recording.record([set_back(running, "late")]) == 0


def test_reports_of_an_earlier_job_are_dropped_although_the_clock_was_set_back(
    as_alice,
    running,  # noqa: F811
    submit,
    until,
    tasks,
):
    ENDS["cancelled"](as_alice)
    until(running, "error")
    as_alice.call("delete", JOB)
    tasks.run()
    second = until(submit(SLEEP), "running")
    assert recording.record([set_back(second, "any"), set_back(second, f"{running.pk}.run:1")]) == 0
    assert recording.record([set_back(second, f"{second.pk}.run:1")]) == 1


@pytest.mark.parametrize("strange", few(["\u00e4-0", "a\0b", "x" * 5000], 1), ids=["not ASCII", "a null", "long"])
def test_an_invalid_message_id_does_not_block_other_rows(running, ingest_now, strange):  # noqa: F811
    publish(SUBJECT, json.dumps(row(0)).encode(), strange)
    publish(SUBJECT, json.dumps(row(1)).encode(), f"{strange}?")
    publish(SUBJECT, json.dumps(row(2)).encode())
    numbers = [{"step": step, "values": {"lr": 0.5}} for step in range(3)]
    publish(f"{SUBJECT}.values", json.dumps(numbers).encode(), f"{strange}v")
    publish(f"{SUBJECT}.values", json.dumps(numbers).encode(), f"{strange}v?")
    ingest_now()
    assert epochs() == [0, 1, 2]
    assert Value.objects.count() == 6


def test_a_lone_surrogate_in_a_message_id_is_stored_once(running):  # noqa: F811
    """As the library reads header bytes that are not valid text."""
    sent = running.created + timedelta(seconds=1)
    delivery = bus.Delivery(SUBJECT, json.dumps(row(0)).encode(), "m\udcff", 1, sent)
    assert [recording.record([delivery]) for _ in range(2)] == [1, 0]


def test_unstorable_rows_are_dropped_and_the_rest_of_the_batch_is_kept(running, monkeypatch):  # noqa: F811
    sent = running.created + timedelta(seconds=1)
    monkeypatch.setattr(
        "tracking.metrics.recording._id", lambda delivery: delivery.message_id
    )  # as if an id were not made storable
    batch = [
        bus.Delivery(subject, json.dumps(row(number)).encode(), f"m{number}{more}", number, sent)
        for number, (subject, more) in enumerate(
            [(SUBJECT, ""), (SUBJECT, "\0"), (SUBJECT, ""), ("job_metrics.al\udcffce.fit", ""), (SUBJECT, "")]
        )
    ]
    assert recording.record(batch) == 3
    assert epochs() == [0, 2, 4]


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize("comes", few(["before the end", "after the end"], 1))
def test_a_websocket_gets_them_in_order_before_the_end(as_alice, running, request, monkeypatch, comes):  # noqa: F811
    token = accounts.token_of(running.user)
    all_recorded, looks = recording.all_recorded, []
    monkeypatch.setattr(recording, "all_recorded", lambda job: looks.append(all_recorded(job)) or looks[-1])

    async def work() -> list:
        link = socket(f"?token={token}")
        if comes == "before the end":
            assert (await link.connect())[0]
        await sync_to_async(as_alice.call)("post", URL, [row(0), row(1), row(2)])
        await sync_to_async(ENDS["finished"])(as_alice)
        if comes == "after the end":
            assert (await link.connect())[0]
        looks.clear()
        # Each look at the ended job comes after what the one before has sent: neither a row nor the close.
        await eventually(lambda: len(looks) >= 3 or not link.output_queue.empty())
        assert link.output_queue.empty()
        assert not any(looks)
        request.getfixturevalue("ingesting")  # not to be waited for here: it takes turns with us in one thread
        seen = [await link.receive_output() for _ in range(4)]
        return [json.loads(message["text"])["epoch"] if "text" in message else message for message in seen]

    assert asyncio.run(work()) == [0, 1, 2, {"type": "websocket.close", "code": 1000}]
    assert Job.objects.get().state == "finished"
