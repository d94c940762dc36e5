"""The key-value store on a real NATS server: reads return what was written, and one of two concurrent writers wins."""

from __future__ import annotations

import secrets
import threading

import pytest

from kernel import bus, keyvalue
from mlp.tests.patience import LIMIT_S


@pytest.fixture
def bucket():
    name = f"test-{secrets.token_hex(4)}"
    yield name
    bus.call(lambda client: client.jetstream(timeout=LIMIT_S).delete_stream(f"KV_{name}"))


def test_put_get_delete(bucket):
    assert keyvalue.get(bucket, "key") is None
    revision = keyvalue.put(bucket, "key", b"value")
    assert keyvalue.get(bucket, "key") == keyvalue.StoredValue(b"value", revision)
    keyvalue.delete(bucket, "key")
    keyvalue.delete(bucket, "key")
    assert keyvalue.get(bucket, "key") is None


def test_an_update_requires_the_current_revision(bucket):
    first = keyvalue.update(bucket, "key", b"1", 0)
    with pytest.raises(keyvalue.Conflict):
        keyvalue.update(bucket, "key", b"2", 0)
    second = keyvalue.update(bucket, "key", b"2", first)
    with pytest.raises(keyvalue.Conflict):
        keyvalue.update(bucket, "key", b"3", first)
    assert keyvalue.get(bucket, "key") == keyvalue.StoredValue(b"2", second)


def test_a_deleted_key_can_be_created_again(bucket):
    keyvalue.update(bucket, "key", b"1", 0)
    keyvalue.delete(bucket, "key")
    keyvalue.update(bucket, "key", b"2", 0)
    assert keyvalue.get(bucket, "key").value == b"2"


def test_concurrent_changes_are_all_applied(bucket):
    keyvalue.ensure([bucket])

    def count():
        for _ in range(10):
            keyvalue.change(bucket, "sum", lambda old: (old or 0) + 1, tries=1000)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert keyvalue.get_json(bucket, "sum")[0] == 40


def test_a_bucket_has_the_configuration_of_the_go_client(bucket):
    keyvalue.ensure([bucket, bucket])
    info = bus.call(lambda client: client.jetstream(timeout=LIMIT_S).stream_info(f"KV_{bucket}"))
    config = info.config
    assert config.subjects == [f"$KV.{bucket}.>"]
    actual = (config.max_msgs_per_subject, config.num_replicas, config.storage, config.max_age, config.discard)
    assert actual == (1, 1, "file", 0, "new")
    assert config.allow_rollup_hdrs
    assert config.deny_delete
    assert config.allow_direct
    assert config.duplicate_window == 120
    assert not config.allow_msg_ttl


def test_deleting_a_missing_key_writes_nothing(bucket):
    keyvalue.delete(bucket, "key")
    keyvalue.ensure([bucket])
    keyvalue.delete(bucket, "key")
    info = bus.call(lambda client: client.jetstream(timeout=LIMIT_S).stream_info(f"KV_{bucket}"))
    assert info.state.last_seq == 0
