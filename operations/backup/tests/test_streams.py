"""Copies of streams on a real NATS server: messages, numbers, times and consumers come back."""

from __future__ import annotations

import secrets

import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from kernel import bus, keyvalue
from mlp.tests.patience import LIMIT_S
from operations.backup import streams
from operations.backup.places import BackupError
from tracking.metrics.recording import STREAM

OTHER = bus.Stream(name="BACKUP_OTHER", subjects=("backup_other.>",))


@pytest.fixture
def filled():
    """Make the metrics' stream with 30 messages, ten of them acknowledged, another stream and a bucket."""
    bus.ensure_streams([STREAM, OTHER])
    mark = secrets.token_hex(4)

    async def work(client: bus.Client) -> dict[int, tuple]:
        jetstream = client.jetstream(timeout=LIMIT_S)
        await jetstream.purge_stream(STREAM.name)
        for number in range(30):
            headers = {"Nats-Msg-Id": f"{mark}{number}"}
            await jetstream.publish(f"job_metrics.backup.{number % 3}", b"x" * 5000, headers=headers)
        config = ConsumerConfig(durable_name="of-the-backup", ack_policy=AckPolicy.EXPLICIT)
        pull = await jetstream.pull_subscribe("", "of-the-backup", stream=STREAM.name, config=config)
        for message in await pull.fetch(10, timeout=LIMIT_S):
            await message.ack()
        await client.flush()
        await jetstream.publish("backup_other.one", b"other")
        return await _messages(client)

    before = bus.call(work, LIMIT_S)
    revision = keyvalue.put("backup-bucket", "key", b"value")
    yield before, revision
    bus.call(_clean, LIMIT_S)


async def _clean(client: bus.Client) -> None:
    await client.jetstream(timeout=LIMIT_S).delete_stream(OTHER.name)
    await client.jetstream(timeout=LIMIT_S).delete_stream("KV_backup-bucket")
    await client.jetstream(timeout=LIMIT_S).delete_consumer(STREAM.name, "of-the-backup")
    await client.jetstream(timeout=LIMIT_S).purge_stream(STREAM.name)


async def _messages(client: bus.Client) -> dict[int, tuple]:
    """Return number -> subject, data, id and time of each message of the metrics' stream."""
    jetstream = client.jetstream(timeout=LIMIT_S)
    state = (await jetstream.stream_info(STREAM.name)).state
    messages = {}
    for number in range(state.first_seq, state.last_seq + 1):
        message = await jetstream.get_msg(STREAM.name, number)
        messages[number] = message.subject, message.data, message.headers["Nats-Msg-Id"], message.time
    return messages


def test_everything_comes_back_as_it_was(filled, tmp_path, monkeypatch):
    before, revision = filled
    monkeypatch.setattr(streams, "known", lambda: None)
    told = streams.save(tmp_path, lambda: None)
    assert {STREAM.name, OTHER.name, "KV_backup-bucket"} <= told.keys()

    async def lose(client: bus.Client) -> None:
        for name in (STREAM.name, OTHER.name, "KV_backup-bucket"):
            await client.jetstream(timeout=LIMIT_S).delete_stream(name)

    bus.call(lose, LIMIT_S)
    assert streams.compare(told) != []
    streams.load(tmp_path, told)
    assert streams.compare(told) == []
    assert bus.call(_messages, LIMIT_S) == before

    async def consumer(client: bus.Client) -> tuple[int, int]:
        info = await client.jetstream(timeout=LIMIT_S).consumer_info(STREAM.name, "of-the-backup")
        return info.num_pending, info.ack_floor.consumer_seq

    assert bus.call(consumer, LIMIT_S) == (20, 10)
    entry = keyvalue.get("backup-bucket", "key")
    assert (entry.value, entry.revision) == (b"value", revision)
    assert keyvalue.update("backup-bucket", "key", b"next", revision) > revision


def test_the_stream_of_metrics_is_copied_first(filled, tmp_path):
    there = []
    streams.save(tmp_path, lambda: there.append(sorted(path.name for path in tmp_path.iterdir())))
    assert there[0] == [STREAM.name]


def test_on_a_server_of_others_only_our_streams_are_copied(filled, tmp_path):
    """As that of the tests is."""
    told = streams.save(tmp_path, lambda: None)
    assert STREAM.name in told
    assert not {OTHER.name, "KV_backup-bucket"} & told.keys()
    with pytest.raises(BackupError, match=f"has messages in the stream {STREAM.name}"):
        streams.need_none(told)


def test_a_damaged_copy_is_refused(filled, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "known", lambda: None)
    told = streams.save(tmp_path, lambda: None)
    path = tmp_path / OTHER.name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(BackupError):
        streams.load(tmp_path, {OTHER.name: told[OTHER.name]})
    bus.ensure_streams([OTHER])


def test_a_server_that_is_not_there_is_told(monkeypatch, tmp_path):
    async def connect():
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(bus, "connect", connect)
    with pytest.raises(BackupError, match="message bus does not answer"):
        streams.save(tmp_path, lambda: None)
