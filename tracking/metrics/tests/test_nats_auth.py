"""A job's own NATS connection: limited to its subjects, and to the life of its token."""

from __future__ import annotations

import asyncio
import base64
import json
import threading

import nats
import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from jobs import lifecycle
from jobs.auth import job_token, nats_address, nats_inbox
from jobs.models import Metrics, Value
from kernel import bus, nats_jwt, nats_tls
from mlp.tests import servers as test_servers
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few, later
from supervision import binaries, servers
from tracking.metrics import ingest, nats_auth

from .test_metrics import row, running, wait_for  # noqa: F401 (fixture)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(tmp_path, settings, monkeypatch):
    """A NATS server with the embedded one's configuration, on its own port."""
    port = test_servers.free_port()
    settings.NATS_PORT = port
    settings.NATS_URL, settings.NATS_USER, settings.NATS_PASSWORD = f"nats://127.0.0.1:{port}", "platform", "s3cret"
    settings.EMBEDDED = {**settings.EMBEDDED, "nats": True}
    conf = tmp_path / "nats.conf"
    monkeypatch.setattr(nats_tls, "certificate_path", lambda: tmp_path / "certificate.pem")
    nats_jwt.issuer()  # from the storage root, before only the server's files go elsewhere
    root, settings.MLP_ROOT = settings.MLP_ROOT, tmp_path
    servers.configure_nats(conf)
    settings.MLP_ROOT = root
    return conf, port


@pytest.fixture
def answering(tmp_path, server, monkeypatch):
    """The server, with the ingest part in a thread of this process."""
    conf, port = server
    command = [binaries.find(binaries.NATS), "-c", str(conf)]
    process = test_servers.start(tmp_path, "nats", command, port)
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), None

    async def work():
        nonlocal stop
        stop = asyncio.Event()
        ready.set()
        await ingest.run(stop)
        await sync_to_async(connections.close_all)()

    thread = threading.Thread(target=loop.run_until_complete, args=(work(),))
    thread.start()
    ready.wait()
    asyncio.run(until_it_listens())
    yield
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()
    test_servers.stop(process)


async def until_it_listens() -> None:
    """Wait for the listener: an invalid request stays unanswered then, and is rejected while nobody listens."""
    client = await bus.connect()
    for _ in range(20 * LIMIT_S):
        try:
            await client.request(nats_auth.SUBJECT, b"?", timeout=1)
        except nats.errors.NoRespondersError:
            await asyncio.sleep(0.05)
        except nats.errors.TimeoutError:
            break
    await client.close()


async def connect(url: str, **options) -> nats.NATS:
    return await nats.connect(url, allow_reconnect=False, connect_timeout=LIMIT_S, **options)


def test_a_job_reports_on_its_own_subjects(running, answering):  # noqa: F811
    async def work():
        client = await connect(nats_address(running), inbox_prefix=nats_inbox("alice", "fit"))
        stored = await client.jetstream().publish("job_metrics.alice.fit", json.dumps(row(0)).encode())
        await client.publish("job_metrics.alice.fit.values", json.dumps({"step": 1, "values": {"lr": 1}}).encode())
        await client.flush()
        await client.close()
        return stored.stream

    assert asyncio.run(work()) == "JOB_METRICS"
    wait_for(lambda: Metrics.objects.exists() and Value.objects.exists())


@pytest.mark.parametrize(
    "subject", [later("job_metrics.alice.other"), "job_metrics.bob.fit", later("raw_logs"), later("$JS.API.INFO")]
)
def test_a_job_may_publish_nothing_else(running, answering, subject):  # noqa: F811
    refused = asyncio.run(_refusal(running, lambda client: client.publish(subject, b"{}")))
    assert "permissions violation" in refused.lower()


@pytest.mark.parametrize("subject", few([">", "_INBOX.>", "job_metrics.>", "$SYS.>"], 1))
def test_a_job_cannot_subscribe_to_other_subjects(running, answering, subject):  # noqa: F811
    refused = asyncio.run(_refusal(running, lambda client: client.subscribe(subject)))
    assert "permissions violation" in refused.lower()


def test_a_job_beyond_its_limits_is_disconnected(running, answering):  # noqa: F811
    async def disconnects(action) -> None:
        closed = asyncio.Event()

        async def note() -> None:
            closed.set()

        client = await connect(nats_address(running), disconnected_cb=note)
        await action(client)
        await asyncio.wait_for(closed.wait(), LIMIT_S)

    async def send_a_long_message(client) -> None:
        client._max_payload = 8 << 20  # the client would refuse it by itself
        await client.publish("job_metrics.alice.fit", b"x" * (nats_jwt.MAX_PAYLOAD + 1))

    async def subscribe_often(client) -> None:
        for number in range(nats_jwt.MAX_SUBSCRIPTIONS + 1):
            await client.subscribe(f"{nats_inbox('alice', 'fit')}.{number}")

    for action in (send_a_long_message, subscribe_often):
        asyncio.run(disconnects(action))


@pytest.mark.parametrize(
    "reply", few(["$KV.mlp-aiops.key", "$JS.API.STREAM.INFO.JOB_METRICS", "raw_logs", "job_metrics.bob.fit"], 1)
)
def test_a_reply_does_not_reach_other_subjects(running, answering, reply):  # noqa: F811
    """JetStream acknowledges to whatever subject a message names for its reply, with the server's own rights."""

    async def work() -> list[str]:
        heard: asyncio.Queue = asyncio.Queue()
        platform = await bus.connect()
        await platform.subscribe(reply, cb=heard.put)
        await platform.subscribe("job_metrics.alice.fit", cb=heard.put)
        await bus.settle(platform)
        client = await connect(nats_address(running), inbox_prefix=nats_inbox("alice", "fit"))
        await client.publish("job_metrics.alice.fit", json.dumps(row(0)).encode(), reply=reply)
        await client.jetstream().publish("job_metrics.alice.fit", json.dumps(row(1)).encode())  # after the reply's turn
        await bus.settle(platform)
        await client.close()
        await platform.close()
        return [heard.get_nowait().subject for _ in range(heard.qsize())]

    assert asyncio.run(work()) == ["job_metrics.alice.fit"] * 2


def test_streams_of_the_global_account_are_kept(tmp_path, server):
    """Earlier versions had no accounts; an upgrade finds what they stored."""
    conf, port = server
    new, store = conf.read_text(), tmp_path / "nats"
    command = [binaries.find(binaries.NATS), "-a", "127.0.0.1", "-p", str(port), "-c", str(conf)]

    def served(text: str, work):
        conf.write_text(text)
        process = test_servers.start(tmp_path, "nats", command, port)
        answer = asyncio.run(work())
        test_servers.stop(process)
        return answer

    async def store_one():
        client = await connect(f"nats://127.0.0.1:{port}")
        await client.jetstream().add_stream(name="JOB_METRICS", subjects=["job_metrics.>"])
        await client.jetstream().publish("job_metrics.alice.fit", b"{}")
        await client.close()

    async def stored() -> int:
        password = (tmp_path / "nats-password").read_text().strip()
        client = await connect(f"nats://127.0.0.1:{port}", user="platform", password=password)
        info = await client.jetstream().stream_info("JOB_METRICS")
        await client.close()
        return info.state.messages

    served(f"jetstream {{ store_dir: {json.dumps(str(store))} }}", store_one)
    servers.keep_streams(store / "jetstream")
    assert served(new, stored) == 1


async def _refusal(job, action) -> str:
    errors: asyncio.Queue = asyncio.Queue()
    client = await connect(nats_address(job), error_cb=errors.put)
    await action(client)
    await client.flush()
    words = str(await asyncio.wait_for(errors.get(), LIMIT_S))
    await client.close()
    return words


def test_invalid_tokens_and_ended_jobs_are_refused(running, answering, settings):  # noqa: F811
    token = job_token(running)

    async def let_in(user: str, password: str) -> bool:
        try:
            client = await nats.connect(
                settings.NATS_URL, user=user, password=password, allow_reconnect=False, connect_timeout=LIMIT_S
            )
        except (nats.errors.Error, OSError):
            return False
        await client.close()
        return True

    async def all_of():
        await (await connect(nats_address(running))).close()
        return [
            await let_in("job", token),
            await let_in("job", "mlp_j1_x"),
            await let_in("", ""),
            await let_in("platform", token),
        ]

    assert asyncio.run(all_of()) == [True, False, False, False]
    lifecycle.cancel(user=running.user, name="fit", by="alice")
    assert asyncio.run(let_in("job", token)) is False


@pytest.mark.parametrize("claims", [b"{", b"[" * 200_000, b"[]", b'{"nats": {}}'])
def test_an_invalid_authorization_request_is_not_answered(claims):
    assert nats_auth.answer(b"head." + base64.urlsafe_b64encode(claims) + b".signature") is None


def test_with_an_external_server_jobs_get_no_address(running, settings):  # noqa: F811
    settings.EMBEDDED = {**settings.EMBEDDED, "nats": False}
    assert nats_address(running) is None
