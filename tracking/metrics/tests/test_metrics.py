"""Metrics: over REST and NATS, through JetStream, into the database, to the websocket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import timedelta

import nats
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import connections

from accounts import lifecycle as accounts
from accounts.models import User
from jobs import lifecycle
from jobs.auth import job_token
from jobs.models import Metrics
from kernel import bus, in_order
from kernel.after_commit import wake
from mlp.asgi import application
from mlp.tests.links import Link
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from tracking.metrics import ingest, recording

pytestmark = pytest.mark.django_db(transaction=True)

SLEEP = "import time\nwhile True: time.sleep(0.05)"
URL = "users/alice/job_metrics/fit"
OTHER = "another good one"


def row(epoch: int, **fields) -> dict:
    return {"epoch": epoch, "accuracy": 0.5 + epoch / 100, "loss": 1.0 / (epoch + 1), "progress": epoch, **fields}


def wait_for(condition, deadline_s: float = LIMIT_S):
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def stream():
    """Provide an empty JOB_METRICS stream, so that no test sees another's messages."""

    async def purge():
        client = await nats.connect(django_settings.NATS_URL, connect_timeout=LIMIT_S)
        await bus.make_stream(client, recording.STREAM)
        await client.jetstream(timeout=LIMIT_S).purge_stream(recording.STREAM.name)
        await client.close()

    asyncio.run(purge())


@pytest.fixture
def ingesting(stream):
    """Run the ingest part in a thread of this process."""
    stop = None
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def work():
        nonlocal stop
        stop = asyncio.Event()
        ready.set()
        await ingest.run(stop)
        await sync_to_async(connections.close_all)()

    thread = threading.Thread(target=loop.run_until_complete, args=(work(),))
    thread.start()
    ready.wait()
    yield
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


@pytest.fixture
def running(submit, until):
    return until(submit(SLEEP), "running")


def publish(subject: str, body: bytes, message_id: str = "") -> None:
    """Publish as a training script does that uses NATS itself."""

    async def work():
        client = await nats.connect(django_settings.NATS_URL, connect_timeout=LIMIT_S)
        await client.jetstream(timeout=LIMIT_S).publish(
            subject, body, headers={"Nats-Msg-Id": message_id} if message_id else None
        )
        await client.close()

    asyncio.run(work())


class TestReport:
    def test_posted_metrics_are_stored_in_order(self, as_alice, running, ingesting):
        assert as_alice.call("post", URL, row(0)).content == b'""'
        assert as_alice.call("post", URL, [row(1), row(2, user="alice", name="fit")]).status_code == 200
        wait_for(lambda: Metrics.objects.count() == 3)
        assert list(Metrics.objects.values_list("seq", "epoch")) == [(1, 0), (2, 1), (3, 2)]
        newest = as_alice.call("get", "users/alice/jobs/fit/metrics?limit=1")
        assert newest.json() == [{"user": "alice", "name": "fit", **row(2)}]
        assert newest["X-Total-Count"] == "3"
        assert as_alice.call("get", "users/alice/jobs/fit").json()["progress"] == 2

    def test_a_repeated_report_counts_once(self, as_alice, running, ingesting):
        for _ in range(3):
            as_alice.call("post", URL, [row(0), row(1)], HTTP_X_MESSAGE_ID="fit:1:run:0")
        as_alice.call("post", URL, [row(1), row(2)], HTTP_X_MESSAGE_ID="fit:1:run:1")
        wait_for(lambda: Metrics.objects.filter(epoch=2).exists())
        assert list(Metrics.objects.values_list("epoch", flat=True)) == [0, 1, 2]

    @pytest.mark.parametrize(
        ("body", "field"),
        few(
            [
                ({**row(0), "epoch": -1}, "epoch"),
                ({**row(0), "epoch": "0"}, "epoch"),
                ({**row(0), "accuracy": None}, "accuracy"),
                ({**row(0), "progress": 101}, "progress"),
                ({**row(0), "progress": -2}, "progress"),
                ({**row(0), "user": "bob"}, "user"),
                ({**row(0), "name": "other"}, "name"),
                ({**row(0), "more": 1}, "more"),
                ({"epoch": 1}, "accuracy"),
                ({"epoch": 1, "progress": 1, "reported": ["loss"]}, "loss"),
                ({**row(0), "reported": ["loss"]}, "accuracy"),
                ({"epoch": 1, "progress": 1, "reported": "loss"}, "accuracy"),
                ({"epoch": 1, "loss": 1, "progress": 1, "reported": ["lost"]}, "reported"),
                ({**row(0), "time": "now"}, "time"),
                ([row(0), {"epoch": 1}], "accuracy"),
                ([row(0)] * 1001, "body"),
            ],
            4,
        ),
    )
    def test_one_invalid_element_refuses_the_whole_request(self, as_alice, running, stream, body, field):
        assert as_alice.refused("post", URL, body).startswith(f"{field}:")

    def test_metrics_of_a_job_that_is_not_running_are_ignored(self, as_alice, running, ingesting):
        lifecycle.cancel(user=running.user, name="fit", by="alice")
        assert as_alice.call("post", URL, row(0)).status_code == 200
        publish("job_metrics.alice.fit", json.dumps(row(0)).encode())
        publish("job_metrics.alice.none", json.dumps(row(0)).encode())
        assert recording.record([]) == 0
        assert not Metrics.objects.exists()

    def test_nothing_is_accepted_after_the_final_row(self, as_alice, running, ingesting):
        as_alice.call("post", URL, [row(0), row(1, progress=100), row(2)])
        wait_for(lambda: Metrics.objects.count() >= 2)
        assert list(Metrics.objects.values_list("epoch", flat=True)) == [0, 1]

    def test_begin_finish_and_delete_are_internal_and_idempotent(self, as_alice, as_staff, running, ingesting):
        as_alice.refused("put", f"{URL}:finish")
        for _ in range(2):
            assert as_staff.call("put", f"{URL}:finish").content == b'""'
        running.refresh_from_db()
        assert running.metrics_until is not None
        as_staff.call("put", f"{URL}:begin")
        as_alice.call("post", URL, row(0))
        wait_for(Metrics.objects.exists)
        for _ in range(2):
            as_staff.call("put", f"{URL}:delete")
        assert not Metrics.objects.exists()


class TestNats:
    def test_a_script_can_publish_to_nats_and_a_repeated_message_counts_once(self, running, ingesting):
        for _ in range(2):
            publish("job_metrics.alice.fit", json.dumps(row(0)).encode(), "mine-0")
        publish("job_metrics.alice.fit", json.dumps(row(1)).encode())
        wait_for(lambda: Metrics.objects.filter(epoch=1).exists())
        assert list(Metrics.objects.values_list("epoch", flat=True)) == [0, 1]

    def test_invalid_messages_are_dropped_and_the_next_ones_stored(self, running, ingesting):
        invalid = [
            b"", b"{", b"[]", b"null", b"\xff", json.dumps(row(0, user="bob")).encode(), b'{"epoch": NaN}',
            b"x" * 60_000, b"[" * 60_000, b'{"epoch": 0, "accuracy": 1e999, "loss": 0, "progress": 0}',
        ]  # fmt: skip
        for place, body in enumerate(invalid, 1):
            publish("job_metrics.alice.fit", body)
            publish("job_metrics.alice.fit", json.dumps(row(place)).encode())
        wait_for(Metrics.objects.filter(epoch=len(invalid)).exists)
        assert list(Metrics.objects.order_by("epoch").values_list("epoch", flat=True)) == [*range(1, len(invalid) + 1)]

    def test_killed_before_the_acknowledgement_it_stores_the_batch_once(self, running, stream):
        """The batch is recorded, its acknowledgement is lost, so it is delivered again."""
        publish("job_metrics.alice.fit", json.dumps(row(0)).encode())
        taken = asyncio.run(_pull_without_ack())
        assert recording.record(taken) == 1
        assert recording.record(taken) == 0
        assert Metrics.objects.count() == 1

    def test_a_database_that_fails_keeps_the_batch_for_later(self, running, ingesting, monkeypatch):
        real, calls = recording.record, []

        def record(batch):
            calls.append(len(batch))
            if len(calls) == 1:
                raise RuntimeError("the database is unavailable")
            return real(batch)

        monkeypatch.setattr("tracking.metrics.recording.record", record)
        publish("job_metrics.alice.fit", json.dumps(row(0)).encode())
        wait_for(Metrics.objects.exists)
        assert len(calls) >= 2


async def _pull_without_ack() -> list[bus.Delivery]:
    client = await bus.connect()
    pull = await client.jetstream(timeout=LIMIT_S).pull_subscribe("job_metrics.>", "test", stream=recording.STREAM.name)
    taken = [in_order.delivery(message) for message in await pull.fetch(1, timeout=LIMIT_S)]
    await client.jetstream(timeout=LIMIT_S).delete_consumer(recording.STREAM.name, "test")
    await client.close()
    return taken


def record(job, *epochs: int) -> None:
    """Store rows as ingest does."""
    sent = job.created + timedelta(seconds=1)
    recording.record(
        [
            bus.Delivery(f"job_metrics.alice.{job.name}", json.dumps(row(epoch)).encode(), f"m{epoch}", epoch, sent)
            for epoch in epochs
        ]
    )


def socket(query: str = "", path: str = f"/api/v1/{URL}", subprotocols=None) -> Link:
    headers = [(b"origin", b"http://localhost"), (b"host", b"localhost")]
    return Link(application, f"{path}{query}", headers=headers, subprotocols=subprotocols)


class TestWebsocket:
    @pytest.fixture
    def token(self, alice):
        return accounts.token_of(alice)

    def live(self, work):
        return asyncio.run(work())

    def test_history_then_live_rows_in_order_without_duplicates(self, running, token):
        record(running, 0, 1)

        async def work():
            link = socket(f"?token={token}")
            assert (await link.connect())[0]
            seen = [(await link.receive_json_from())["epoch"] for _ in range(2)]
            for epoch in (2, 3):
                await sync_to_async(record)(running, epoch)
                await sync_to_async(wake)("job", running.pk)  # doubled
            seen += [(await link.receive_json_from())["epoch"] for _ in range(2)]
            await sync_to_async(record)(running, 4)  # another 3 would arrive before it
            seen.append((await link.receive_json_from())["epoch"])
            await link.disconnect()
            return seen

        assert self.live(work) == [0, 1, 2, 3, 4]

    def test_it_closes_normally_when_the_job_ends(self, running, token):
        async def work():
            link = socket(subprotocols=["bearer", token])
            connected, subprotocol = await link.connect()
            assert (connected, subprotocol) == (True, "bearer")
            await sync_to_async(record)(running, 0)
            await sync_to_async(lifecycle.cancel)(user=running.user, name="fit", by="alice")
            first = await link.receive_output()
            second = await link.receive_output()
            return first["type"], second

        assert self.live(work) == ("websocket.send", {"type": "websocket.close", "code": 1000})

    def test_one_user_cannot_have_more_websockets_than_the_limit(self, running, token, settings):
        settings.WEBSOCKETS_PER_USER = 1

        async def work():
            link, other = socket(f"?token={token}"), socket(f"?token={token}")
            assert (await link.connect())[0]
            assert (await other.connect())[0]
            refusal = await other.receive_output()
            await link.disconnect()
            again = socket(f"?token={token}")
            assert (await again.connect())[0]
            await sync_to_async(record)(running, 0)
            assert (await again.receive_json_from())["epoch"] == 0  # it would be closed before
            await again.disconnect()
            return refusal

        reason = "too many at the same time: a user may have 1 (MLP_WEBSOCKETS_PER_USER)"
        assert self.live(work) == {"type": "websocket.close", "code": 4429, "reason": reason}

    @pytest.mark.parametrize("take", few([
        lambda: accounts.rotate_token(user=User.objects.get(username="oscar"), by="test"),
        lambda: accounts.set_staff(username="oscar", staff=False, by="test"),
        lambda: accounts.deregister(username="oscar", by="test"),
    ], 1), ids=["rotated", "no operator", "de-registered"])  # fmt: skip
    def test_no_row_is_sent_after_access_was_revoked(self, running, staff, take):
        token = accounts.token_of(staff)

        async def work():
            link = socket(f"?token={token}")
            assert (await link.connect())[0]
            await sync_to_async(record)(running, 0)
            assert (await link.receive_json_from())["epoch"] == 0
            await sync_to_async(take)()
            await sync_to_async(record)(running, 1)
            return await link.receive_output()

        assert self.live(work) == {"type": "websocket.close", "code": 4401}

    @pytest.mark.parametrize("take", few([
        lambda client: client.post("/logout"),
        lambda client: accounts.change_password(user=User.objects.get(username="alice"), password=OTHER, by="test"),
    ], 1), ids=["logged out", "another password"])  # fmt: skip
    def test_no_row_is_sent_after_the_session_ended_but_others_continue(self, running, client, token, take):
        client.force_login(running.user)
        cookie = f"sessionid={client.cookies['sessionid'].value}".encode()

        async def work():
            headers = [(b"origin", b"http://localhost"), (b"host", b"localhost"), (b"cookie", cookie)]
            link, other = Link(application, f"/api/v1/{URL}", headers=headers), socket(f"?token={token}")
            for connection in (link, other):
                assert (await connection.connect())[0]
            await sync_to_async(record)(running, 0)
            for connection in (link, other):
                assert (await connection.receive_json_from())["epoch"] == 0
            await sync_to_async(take)(client)
            await sync_to_async(record)(running, 1)
            return await link.receive_output(), (await other.receive_json_from())["epoch"]

        assert self.live(work) == ({"type": "websocket.close", "code": 4401}, 1)

    @pytest.mark.parametrize("path", ["/", "/api/v1/nothing", "/api/v1/users/alice/jobs/fit"])
    def test_an_unknown_job_is_refused(self, path):
        async def work():
            return (await socket(path=path).connect())[0]

        assert self.live(work) is False

    def test_a_session_can_open_it(self, running, client):
        client.force_login(running.user)
        cookie = f"sessionid={client.cookies['sessionid'].value}".encode()

        async def work():
            headers = [(b"origin", b"http://localhost"), (b"host", b"localhost"), (b"cookie", cookie)]
            link = Link(application, f"/api/v1/{URL}", headers=headers)
            connected, _ = await link.connect()
            await link.disconnect()
            return connected

        assert self.live(work)

    def test_a_page_of_another_origin_cannot_open_it(self, running, client):
        client.force_login(running.user)
        cookie = f"sessionid={client.cookies['sessionid'].value}".encode()

        async def work():
            headers = [(b"origin", b"http://evil.example"), (b"host", b"localhost"), (b"cookie", cookie)]
            link = Link(application, f"/api/v1/{URL}", headers=headers)
            connected, _ = await link.connect()
            await link.disconnect()
            return connected

        assert not self.live(work)

    def test_other_users_job_tokens_and_anonymous_callers_are_refused_but_staff_are_not(
        self, running, token, bob, staff
    ):
        async def connected(query: str, path: str = f"/api/v1/{URL}") -> bool:
            link = socket(query, path)
            answer, _ = await link.connect()
            await link.disconnect()
            return answer

        async def work():
            none = f"/api/v1/{URL[:-3]}none"
            return [
                await connected(""),
                await connected("?token=x"),
                await connected(f"?token={accounts_tokens['bob']}"),
                await connected(f"?token={job_token(running)}"),
                await connected(f"?token={token}", none),
                await connected(f"?token={accounts_tokens['staff']}"),
            ]

        accounts_tokens = {"bob": accounts.token_of(bob), "staff": accounts.token_of(staff)}
        assert self.live(work) == [False, False, False, False, False, True]
