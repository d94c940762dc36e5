"""The protobuf messages: golden vectors, refusals, and how lists are split."""

from __future__ import annotations

import pytest

from aiops.wire import payloads
from kernel.tests.nats_tools import Peer

GOLDEN = bytes.fromhex(
    "0a5e0a026131120263311a0748656c6c6f2031220b68656c6c6f203c6e756d3e2a07416e6f6d616c793208776f726b6c6f61643a0968656c"
    "6c6f203c2a3e40074a076f706e696c6f67550000803e5a0170620764656661756c746a0164720173"
)
FIELDS = {
    "_id": "a1",
    "cluster_id": "c1",
    "log": "Hello 1",
    "masked_log": "hello <num>",
    "anomaly_level": "Anomaly",
    "log_type": "workload",
    "template_matched": "hello <*>",
    "template_cluster_id": 7,
    "inference_model": "opnilog",
    "opnilog_confidence": 0.25,
    "pod_name": "p",
    "namespace_name": "default",
    "deployment": "d",
    "service": "s",
}


def test_the_golden_list_is_decoded_and_encoded_byte_for_byte():
    (item,) = payloads.decode(GOLDEN)
    assert {field.name: value for field, value in item.ListFields()} == FIELDS
    assert payloads.encode([payloads.Payload(**FIELDS)]) == GOLDEN


def test_small_golden_vectors():
    assert payloads.Payload(_id="x").SerializeToString().hex() == "0a0178"
    assert payloads.encode([]) == b""
    assert payloads.decode(b"") == []
    assert list(payloads.batches([])) == []


def test_unknown_fields_are_tolerated_and_passed_on():
    stranger = payloads.Payload(_id="x").SerializeToString() + bytes([0xA2, 0x06, 0x01, 0x21])  # field 100, a string
    item = payloads.decode(b"\x0a" + bytes([len(stranger)]) + stranger)[0]
    assert item._id == "x"
    assert item.SerializeToString() == stranger


@pytest.mark.parametrize(
    "wrong", [b"{}", b'{"uuid": "x"}', b"hello", b"\x0a", b"\xff" * 20, payloads.Payload(**FIELDS).SerializeToString()]
)
def test_an_invalid_list_is_refused(wrong):
    with pytest.raises(payloads.WireError):
        payloads.decode(wrong)


@pytest.mark.parametrize(
    "wrong", [b"", b"{}", b"hello world", GOLDEN, payloads.Payload(log="no id").SerializeToString()]
)
def test_an_invalid_single_payload_is_refused(wrong):
    with pytest.raises(payloads.WireError):
        payloads.decode_one(wrong)


def test_an_item_without_an_id_is_refused():
    with pytest.raises(payloads.WireError, match="_id"):
        payloads.decode(payloads.encode([payloads.Payload(log="x")]))


def test_lists_are_split_below_the_servers_limit_and_stay_in_order():
    items = [payloads.Payload(_id=str(number), log="x" * 100_000) for number in range(200)]
    parts = list(payloads.batches(items))
    assert len(parts) > 2
    assert all(len(part) <= 8 << 20 for part in parts)
    assert [item._id for part in parts for item in payloads.decode(part)] == [item._id for item in items]


def test_a_smaller_limit_of_the_server_is_respected(monkeypatch):
    monkeypatch.setattr("kernel.bus._max_payload", 1 << 20)
    parts = list(payloads.batches([payloads.Payload(_id=str(number), log="x" * 100_000) for number in range(50)]))
    assert max(map(len, parts)) < 1 << 20


def test_the_largest_lists_pass_through_a_real_server():
    peer = Peer()
    try:
        peer.listen("test.large")
        parts = list(payloads.batches([payloads.Payload(_id=str(number), log="x" * 500_000) for number in range(40)]))
        assert max(map(len, parts)) > 7 << 20
        for part in parts:
            peer.publish("test.large", part)
        assert peer.wait("test.large", len(parts)) == parts
    finally:
        peer.close()


def test_lists_are_split_by_number():
    parts = list(payloads.batches([payloads.Payload(_id=str(number)) for number in range(1025)], most=512))
    assert [len(payloads.decode(part)) for part in parts] == [512, 512, 1]


def test_an_item_beyond_the_limit_is_truncated():
    (part,) = payloads.batches(
        [payloads.Payload(_id="big", log="é" * (9 << 20), masked_log="y" * (9 << 20), pod_name="p")]
    )
    assert len(part) <= 8 << 20
    (item,) = payloads.decode(part)
    assert (item._id, item.pod_name) == ("big", "p")
    assert item.log
    assert set(item.log) == {"é"}
