"""What one job may report: how much may wait to be stored, and how much is kept. Others are not affected."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from uuid import uuid4

import nats
import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.utils import timezone

from jobs.models import Job, Metrics, Value
from kernel import bus
from kernel.errors import Fault
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later
from tracking.metrics import recording, series_api

from .test_metrics import URL, ingesting, row, stream, wait_for  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db(transaction=True)

FEW = 20
SUBJECT, OTHER = "job_metrics.alice.fit", "job_metrics.bob.fit"
NOTICE = "The job has reported 3 values, the most that are kept (MLP_JOB_VALUES). Later ones are not stored."


@pytest.fixture
def few(monkeypatch, request):
    """Provide a stream that takes few messages of one job."""
    monkeypatch.setattr(recording, "STREAM", dataclasses.replace(recording.STREAM, most_waiting=FEW))
    request.getfixturevalue("stream")


@pytest.fixture
def job(alice):
    """A job whose process is of no interest."""
    return Job.objects.create(
        user=alice, tenant=alice.tenant, name="fit", entry="fit.py", cpu=1, ram=100, state="running", run_name="none",
        started=timezone.now(),
    )  # fmt: skip


def reports(count: int, subject: str = SUBJECT) -> list[tuple[str, bytes, str]]:
    return [(subject, json.dumps(row(epoch % 99)).encode(), str(uuid4())) for epoch in range(count)]


def test_a_job_that_is_not_read_fast_enough_is_refused_alone(few):
    with pytest.raises(Fault, match="reported faster than it can be stored"):
        bus.publish(reports(FEW + 1), timeout_s=1)
    bus.publish(reports(FEW, OTHER))


def test_reports_leave_nothing_behind_in_the_process(stream):  # noqa: F811
    async def subscriptions(client) -> int:
        return len(client._subs)

    bus.publish(reports(1))
    before = bus.call(subscriptions)
    bus.publish(reports(2))
    assert bus.call(subscriptions) == before


def test_reports_wait_for_room_and_all_are_stored_in_order(few, job, ingesting):  # noqa: F811
    bus.publish(reports(5 * FEW), timeout_s=60)
    wait_for(lambda: Metrics.objects.count() == 5 * FEW)
    assert list(Metrics.objects.values_list("epoch", flat=True)) == [epoch % 99 for epoch in range(5 * FEW)]
    wait_for(lambda: waiting() == 0)
    assert bus.is_consumed(recording.STREAM, recording.DURABLE, SUBJECT, job.created)


@pytest.mark.parametrize("path", [URL, later("users/alice/jobs/fit/values")])
def test_a_report_that_is_refused_and_sent_again_is_stored_once(few, job, as_alice, request, monkeypatch, path):
    monkeypatch.setattr(recording, "PACK", 1)
    values = [{"step": epoch, "values": {"lr": 0.5}} for epoch in range(2 * FEW)]
    rows = [row(epoch) for epoch in range(2 * FEW)] if path == URL else values
    with monkeypatch.context() as impatient:
        impatient.setattr(bus, "publish", functools.partial(bus.publish, timeout_s=1))
        assert as_alice.call("post", path, rows).status_code == 503
    request.getfixturevalue("ingesting")
    kept = Metrics if path == URL else Value
    wait_for(lambda: waiting() == 0)
    assert 0 < kept.objects.count() < 2 * FEW
    for count in (2, 4):
        assert as_alice.call("post", path, rows).status_code == 200
        wait_for(lambda count=count: kept.objects.count() >= count * FEW)
        assert kept.objects.count() == count * FEW, "an equal report after a good one is another report"


def test_a_report_with_a_key_counts_once(as_alice, job, ingesting):  # noqa: F811
    for _ in range(2):
        key = {"HTTP_IDEMPOTENCY_KEY": "batch 7"}
        assert as_alice.call("post", URL, [row(0), row(1)], **key).status_code == 200
    assert as_alice.call("post", URL, row(2)).status_code == 200
    wait_for(lambda: Metrics.objects.filter(epoch=2).exists())
    assert list(Metrics.objects.values_list("epoch", flat=True)) == [0, 1, 2]


def waiting() -> int:
    """Return the number of messages in the stream."""

    async def work(client) -> int:
        return (await client.jetstream(timeout=LIMIT_S).stream_info(recording.STREAM.name)).state.messages

    return bus.call(work)


def test_a_job_that_floods_the_message_bus_is_told_so_on_its_page(few, job, request, alice):
    async def flood() -> None:
        client = await nats.connect(django_settings.NATS_URL, connect_timeout=LIMIT_S)
        for _subject, body, _id in reports(10 * FEW):
            await client.publish(SUBJECT, body)
        await client.flush()
        await client.close()

    asyncio.run(flood())
    request.getfixturevalue("ingesting")
    wait_for(lambda: Job.objects.exclude(metrics_notice="").exists())
    assert Metrics.objects.count() == FEW
    client = Client()
    client.force_login(alice)
    assert "The job reports faster than its reports can be stored" in client.get("/jobs/fit").content.decode()


def test_values_beyond_the_limit_of_a_job_are_not_stored(as_alice, job, ingesting, settings):  # noqa: F811
    settings.JOB_VALUES = 3
    rows = [{"step": step, "values": {"lr": 0.5}} for step in range(2)]
    assert as_alice.call("post", "users/alice/jobs/fit/values", rows).status_code == 200
    wait_for(lambda: Value.objects.count() == 2)
    assert as_alice.call("post", URL, [row(0), row(1)]).status_code == 200
    wait_for(lambda: Job.objects.get().values_kept == 3)
    for path, body in ((URL, row(2)), ("users/alice/jobs/fit/values", rows)):
        refusal = as_alice.call("post", path, body)
        assert (refusal.status_code, refusal.json()) == (403, {"msg": NOTICE})
    assert (Value.objects.count(), Metrics.objects.count()) == (2, 1)
    assert Job.objects.get().metrics_notice == NOTICE


@pytest.mark.parametrize("body", [b"x" * 100_000, b"[" * 200_000], ids=["long", "nested"])
def test_a_longer_message_than_the_limit_is_refused(stream, body):  # noqa: F811
    async def send() -> None:
        client = await nats.connect(django_settings.NATS_URL, connect_timeout=LIMIT_S)
        try:
            await client.jetstream(timeout=LIMIT_S).publish(SUBJECT, body)
        finally:
            await client.close()

    with pytest.raises(nats.js.errors.BadRequestError, match="size"):
        asyncio.run(send())


def test_a_message_of_values_has_a_size():
    rows = [{"step": step, "values": {f"{'n' * 97}{n}": 0.123456789 for n in range(100)}} for step in range(30)]
    packs = list(series_api.packs_of(rows))
    assert [row for _, _, data in packs for row in json.loads(data)] == rows
    assert [start for start, _, _ in packs] == [
        sum(count for _, count, _ in packs[:index]) for index in range(len(packs))
    ]
    assert max(len(data) for _, _, data in packs) <= recording.STREAM.most_payload
