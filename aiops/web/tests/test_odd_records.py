"""Shippers drop for good what is refused, so what is odd in one record loses nothing else: OTLP and Loki's push."""

from __future__ import annotations

import gzip
import json
import zlib

import cramjam
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from accounts import lifecycle as accounts
from aiops.intake import accept
from aiops.models import LogLine
from aiops.wire.loki import PushRequest
from mlp.tests.tiers import few

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.begins(0.5)]

AT = 1700000000_000000001
JSON, PROTOBUF = "application/json", "application/x-protobuf"
A, B = ({"body": {"stringValue": text}} for text in "ab")
TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"


def texts() -> list[str]:
    return list(LogLine.objects.order_by("pk").values_list("log", flat=True))


@pytest.fixture
def send(client, alice):
    """Return a function that sends a body to an endpoint as alice."""

    def post(endpoint: str, body, kind: str = JSON, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"authorization": f"Bearer {accounts.token_of(alice)}", **headers}
        return client.post(endpoint, data, content_type=kind, headers=given)

    return post


@pytest.fixture
def otlp(send):
    def post(*records, resource=(), kind: str = JSON, **headers):
        logs = [{"resource": {"attributes": list(resource)}, "scopeLogs": [{"logRecords": list(records)}]}]
        return send("/v1/logs", {"resourceLogs": logs}, kind, **headers)

    return post


@pytest.fixture
def loki(send):
    def post(*streams):
        return send("/loki/api/v1/push", {"streams": list(streams)})

    return post


def field(number: int, content: bytes) -> bytes:
    """Return a field of protobuf with a length."""
    length, sizes = len(content), []
    while length > 0x7F:
        sizes.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *sizes, length]) + content


def pushed(labels: bytes, *lines: bytes) -> bytes:
    """Return a PushRequest whose texts may be any bytes, in a snappy block."""
    at = field(1, b"\x08\x80\xe2\xcf\xaa\x06")  # 1700000000 s
    entries = b"".join(field(2, at + field(2, line) + field(3, field(1, b"k") + field(2, b"v\xff"))) for line in lines)
    return bytes(cramjam.snappy.compress_raw(field(1, field(1, labels) + entries)))


class TestLoki:
    @pytest.mark.parametrize("count", [1, 5001])  # more than are stored at a time
    def test_bytes_that_are_not_utf_8_are_replaced(self, send, count):
        data = pushed(b'{app="w\xffb"}', *(f"good {number}".encode() for number in range(count)), b"caf\xe9", b"end")
        assert send("/loki/api/v1/push", data, PROTOBUF).status_code == 204
        assert (texts()[-2:], len(texts())) == (["caf\ufffd", "end"], count + 2)
        row = LogLine.objects.last()
        assert (row.deployment, row.attributes) == ("w\ufffdb", {"k": "v\ufffd"})

    def test_what_comes_before_a_torn_place_is_stored(self, send):
        whole = cramjam.snappy.decompress_raw(pushed(b'{app="web"}', b"good")).read()
        answer = send("/loki/api/v1/push", bytes(cramjam.snappy.compress_raw(whole + b"\x0a\x7f{")), PROTOBUF)
        assert (answer.status_code, "ends in the middle" in answer.json()["message"], texts()) == (400, True, ["good"])

    def test_a_message_without_snappy_is_taken(self, send):
        message = PushRequest()
        message.streams.add(labels='{app="web"}').entries.add(line="plain")
        assert send("/loki/api/v1/push", message.SerializeToString(), PROTOBUF).status_code == 204
        assert texts() == ["plain"]

    def test_one_odd_entry_or_stream_loses_nothing_else(self, loki):
        rows = [[str(AT), "good"], 5, ["1"], [str(AT), None], ["soon", "odd time"], [str(AT), {"a": 1}], [AT, 7.5]]
        streams = [{"stream": {"app": None, "n": 1}, "values": rows}, 7, {"stream": [], "values": {}}, {"values": rows}]
        assert loki(*streams).status_code == 204
        assert texts() == ["good", "odd time", '{"a": 1}', "7.5"] * 2
        odd = LogLine.objects.filter(log="odd time").first()
        assert (odd.attributes, odd.time > 1700000000000) == ({"n": "1", "timestamp": "soon"}, True)

    def test_the_older_form_and_address_are_read(self, send):
        entry = {"ts": "2023-11-14T22:13:20.123456789Z", "line": "old"}
        body = {"streams": [{"labels": '{app="web", path="C:\\Users"}', "entries": [entry]}]}
        assert send("/api/prom/push", body).status_code == 204
        row = LogLine.objects.get()
        assert (row.deployment, row.log, row.time) == ("web", "old", 1700000000123)
        assert row.attributes == {"path": r"C:\Users"}

    def test_nan_and_bytes_in_json(self, send):
        body = (
            b'{"streams": [{"stream": {"app": "caf\xe9", "n": NaN}, "values": [["%d", "caf\xe9", {"x": Infinity}]]}]}'
        )
        assert send("/loki/api/v1/push", body % AT).status_code == 204
        row = LogLine.objects.get()
        assert (row.log, row.deployment, row.attributes) == ("caf\ufffd", "caf\ufffd", {"n": "NaN", "x": "Infinity"})

    def test_the_health_check_of_shippers(self, client):
        answer = client.get("/ready")
        assert (answer.status_code, answer["Content-Type"].split(";")[0]) == (200, "text/plain")


def any_value() -> ExportLogsServiceRequest:
    """Return a request with a record that has every kind of value."""
    message = ExportLogsServiceRequest()
    record = message.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=AT, severity_number=9)
    record.trace_id, record.span_id = bytes.fromhex(TRACE), bytes.fromhex(SPAN)
    record.body.string_value = "paid"
    attributes = record.attributes
    attributes.add(key="n").value.int_value = 5
    attributes.add(key="half").value.double_value = 1
    attributes.add(key="yes").value.bool_value = True
    attributes.add(key="none")
    attributes.add(key="raw").value.bytes_value = b"\xff\x00"
    attributes.add(key="text").value.bytes_value = b"hi"
    inner = attributes.add(key="map").value.kvlist_value.values.add(key="list").value.array_value.values
    inner.add().string_value = "a"
    inner.add().int_value = 2
    return message


JSON_VALUES = [
    {"key": "n", "value": {"intValue": "5"}}, {"key": "half", "value": {"doubleValue": 1}},
    {"key": "yes", "value": {"boolValue": True}}, {"key": "none", "value": {}},
    {"key": "raw", "value": {"bytesValue": "/wA="}}, {"key": "text", "value": {"bytesValue": "aGk="}},
    {"key": "map", "value": {"kvlistValue": {"values": [{"key": "list", "value": {"arrayValue": {"values": [
        {"stringValue": "a"}, {"intValue": 2}]}}}]}}},
]  # fmt: skip


class TestOtlp:
    @pytest.mark.parametrize("trace", few([TRACE, TRACE.upper(), "W47/95gDgQPSabYzgT/GDA=="], 1))
    @pytest.mark.parametrize("severity", [9, "SEVERITY_NUMBER_INFO"])
    def test_the_same_record_in_both_forms_is_one_line(self, otlp, send, trace, severity):
        assert send("/v1/logs", any_value().SerializeToString(), PROTOBUF).status_code == 200
        record = {"timeUnixNano": str(AT), "severityNumber": severity, "traceId": trace, "spanId": SPAN}
        assert otlp({**record, "body": {"stringValue": "paid"}, "attributes": JSON_VALUES}).status_code == 200
        assert LogLine.objects.get().attributes == {
            "n": "5", "half": "1.0", "yes": "true", "none": "", "raw": "/wA=", "text": "hi",
            "map": '{"list": ["a", 2]}', "severity": "9", "trace_id": TRACE, "span_id": SPAN,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("body", "text", "rest"),
        few([
            ({"kvlistValue": {"values": [
                {"key": "msg", "value": {"stringValue": "paid"}}, {"key": "n", "value": {"intValue": "5"}}]}},
             "paid", {"n": "5"}),
            ({"kvlistValue": {"values": [{"key": "n", "value": {"intValue": "5"}}]}}, '{"n": 5}', None),
            ({"arrayValue": {"values": [{"stringValue": "a"}, {"boolValue": False}]}}, '["a", false]', None),
            ({"bytesValue": "cGFpZCBmb3IgYSBjYWbpIAAgaW4gUm9tZQ=="}, "paid for a caf\ufffd \ufffd in Rome", None),
            ({"bytesValue": "aGVsbG8="}, "hello", None),
            ({"string_value": "snake"}, "snake", None),
            ({"intValue": 7}, "7", None),
            ("bare", "bare", None),
            ({"value": {"stringValue": "wrapped"}}, "wrapped", None),
            ({"message": "plain", "n": 1}, "plain", {"n": "1"}),
            ({"stringValue": "a\0\ud800"}, "a\ufffd\ufffd", None),
        ], 5),
        ids=lambda value: str(value)[:30].encode("ascii", "replace").decode(),
    )  # fmt: skip
    def test_a_structured_body_becomes_its_text_and_attributes(self, otlp, body, text, rest):
        assert otlp({"timeUnixNano": str(AT), "body": body}).status_code == 200
        row = LogLine.objects.get()
        assert (row.log, row.attributes) == (text, rest)

    def test_an_event_without_a_body_is_its_name_or_its_attributes(self, otlp):
        attributes = [{"key": "n", "value": {"intValue": 1}}]
        otlp({"eventName": "checkout"}, {"attributes": attributes})
        assert texts() == ["checkout", '{"n": 1}']

    @pytest.mark.parametrize(
        ("name", "value", "ms"),
        few(
            [
                ("timeUnixNano", AT, 1700000000000),
                ("timeUnixNano", {"low": (AT & 0xFFFFFFFF) - 2**32, "high": AT >> 32}, 1700000000000),
                ("time_unix_nano", str(AT), 1700000000000),
                ("timeUnixNano", "1700000000", 1700000000000),
                ("observedTimeUnixNano", str(AT), 1700000000000),
                ("timeUnixNano", [AT // 10**9, 1], 1700000000000),
                ("timeUnixNano", "soon", None),
                ("timeUnixNano", [], None),
                ("timeUnixNano", "99" * 20, None),
            ],
            4,
        ),
    )
    def test_times(self, otlp, name, value, ms):
        assert otlp({name: value, "body": {"stringValue": "x"}}).status_code == 200
        row = LogLine.objects.get()
        assert row.time == ms if ms else row.time > 1700000000000

    def test_one_odd_part_loses_nothing_else(self, otlp, send):
        good = {"body": {"stringValue": "good"}}
        resource = [5, {"key": 7}, None, {"key": "app", "value": {"stringValue": "web"}}]
        answer = otlp(good, 5, {"body": {"stringValue": "odd"}, "attributes": [1], "severityNumber": []}, good,
                      resource=resource)  # fmt: skip
        assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1"
        logs = [None, {"scopeLogs": 5}, {"resource": 5, "scopeLogs": [{"logRecords": good}, "x"]}]
        assert send("/v1/logs", {"resourceLogs": logs}).json()["partialSuccess"]["rejectedLogRecords"] == "3"
        assert texts() == ["good", "odd", "good", "good"]
        assert LogLine.objects.first().deployment == "web"

    def test_bytes_that_are_not_utf_8_are_replaced(self, send):
        odd = field(1, b"caf\xe9")  # of an AnyValue, and of a KeyValue
        pair = odd + field(2, odd)
        record = field(5, odd) + field(6, pair)
        deep = b"\x08\x01"
        for _ in range(120):
            deep = field(5, field(1, deep))  # more than protobuf reads
        resource = field(1, field(1, b"app") + field(2, field(1, b"w\xff"))) + field(1, field(1, b"x") + field(2, deep))
        torn = field(5, field(1, b"torn")) + field(6, b"\xff\xff") + b"\x0a"
        data = field(1, field(1, resource) + field(2, field(2, record) + field(2, torn) + field(2, b"\xff")))
        answer = send("/v1/logs", data, PROTOBUF)
        assert ExportLogsServiceResponse.FromString(answer.content).partial_success.rejected_log_records == 1
        assert (answer.status_code, texts()) == (200, ["caf\ufffd", "torn"])
        row = LogLine.objects.first()
        assert (row.deployment, row.attributes) == ("w\ufffd", {"caf\ufffd": "caf\ufffd"})

    def test_what_is_no_export_is_said(self, send):
        answer = send("/v1/logs", {"timestamp": 1581385157.1, "body": "Incoming request"})
        assert (answer.status_code, "resourceLogs" in answer.json()["message"]) == (400, True)

    @pytest.mark.parametrize(
        ("logs", "rejected"),
        few(
            [
                ({"instrumentationLibraryLogs": [{"logs": [A]}], "scopeLogs": [{"logRecords": [B]}]}, 0),
                ({"scopeLogs": [{"logRecords": None, "log_records": [A], "logs": B}]}, 0),
                ({"scopeLogs": None, "scope_logs": [{"logs": [A, B]}]}, 0),
                ({"instrumentation_library_logs": [{"logs": [A, 5]}], "scopeLogs": [{"logs": [B]}]}, 1),
                ({"scopeLogs": [{"records": [A, B], "logRecords": [A, B], "scope": {"name": "s"}}]}, 2),
                ({"logRecords": [A], "scopeLogs": [{"logRecords": [A, B], "more": {"a": 1}}], "schemaUrl": "x"}, 2),
            ],
            4,
        ),
    )  # fmt: skip
    def test_records_by_names_of_other_releases_are_stored_and_others_rejected(self, send, logs, rejected):
        answer = send("/v1/logs", {"resourceLogs": [{"resource": {"attributes": []}, **logs}]})
        assert int(answer.json()["partialSuccess"].get("rejectedLogRecords", 0)) == rejected
        assert sorted(texts()) == ["a", "b"]

    def test_containers_beside_the_known_ones_are_rejected(self, send, loki):
        body = {"resourceLogs": [{"scopeLogs": [{"logRecords": A}]}], "scopeLogs": [{"logRecords": [B]}]}
        assert send("/v1/logs", body).json()["partialSuccess"]["rejectedLogRecords"] == "1"
        assert loki({"stream": {}, "values": None, "entries": [{"ts": AT, "line": "c"}]}).status_code == 204
        assert loki({"stream": {}, "lines": [["1", "x"]]}).status_code == 400
        assert send("/loki/api/v1/push", {"streams": [], "logs": [{"line": "x"}]}).status_code == 400
        assert texts() == ["a", "c"]

    def test_a_library_of_the_older_protobuf_is_a_scope(self, send):
        record = field(2, field(5, field(1, b"old")))  # InstrumentationLibraryLogs.log_records: LogRecord.body
        library = bytes([0xC2, 0x3E, len(record)]) + record  # ResourceLogs' field 1000, as 0.15 to 0.19 had it
        assert send("/v1/logs", field(1, library), PROTOBUF).content == b""
        assert texts() == ["old"]


BODIES = {
    "/v1/logs": {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "one"}}]}]}]},
    "/loki/api/v1/push": {"streams": [{"stream": {"app": "web"}, "values": [[str(AT), "one"]]}]},
}
CODINGS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "DEFLATE": lambda data: zlib.compress(data)[2:-4],  # without its header, as some clients send it
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
    "identity": bytes,
}


@pytest.mark.parametrize("endpoint", BODIES)
class TestCodings:
    def test_they_are_unpacked(self, send, endpoint):
        for number, (name, pack) in enumerate(CODINGS.items(), start=1):
            body = json.dumps(BODIES[endpoint]).replace("one", str(number)).encode()
            assert send(endpoint, pack(body), **{"content-encoding": name}).status_code in {200, 204}
        assert texts() == ["1", "2", "3", "4", "5"]

    def test_others_are_415_and_damaged_or_large_bodies_400(self, send, endpoint):
        answer = send(endpoint, BODIES[endpoint], **{"content-encoding": "br"})
        assert (answer.status_code, "gzip" in answer["Accept-Encoding"], "br" in answer.json()["message"]) == (
            415, True, True,
        )  # fmt: skip
        for name, pack in (("deflate", zlib.compress), ("zstd", lambda data: bytes(cramjam.zstd.compress(data)))):
            large = send(endpoint, pack(b"0" * (33 << 20)), **{"content-encoding": name})
            assert (large.status_code, "32 MiB" in large.json()["message"]) == (400, True)
            torn = send(endpoint, pack(b'{"streams": []}')[:-3], **{"content-encoding": name})
            assert (torn.status_code, name in torn.json()["message"]) == (400, True)

    def test_every_answer_is_json(self, client, send, endpoint, monkeypatch):
        assert client.get(endpoint).json()["code"] == 405

        def broken(_lines):
            raise ValueError("nobody has thought of this")

        monkeypatch.setattr(accept, "store", broken)
        answer = send(endpoint, BODIES[endpoint])
        assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (503, 503, "5")
