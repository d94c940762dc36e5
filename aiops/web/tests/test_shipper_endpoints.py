"""The endpoints for shippers: OTLP from the OpenTelemetry exporter, Loki push."""

from __future__ import annotations

import gzip
import json
import logging
import time

import cramjam
import pytest
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from accounts import lifecycle as accounts
from aiops.intake import accept
from aiops.models import LogLine
from aiops.wire.loki import PushRequest, labels_of
from kernel.errors import Fault
from mlp.tests.tiers import few

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.begins(0.5)]  # a minute: not at the very end

URL = "aiops/logs"


def stored() -> list[tuple]:
    return list(LogLine.objects.order_by("pk").values_list("cluster", "namespace", "deployment", "log"))


class TestOtlp:
    def test_the_exporter_of_opentelemetry_sends_unchanged(self, live_server, alice):
        headers = {"Authorization": f"Bearer {accounts.token_of(alice)}"}
        exporter = OTLPLogExporter(f"{live_server.url}/v1/logs", headers=headers)
        provider = LoggerProvider(
            Resource.create({"service.name": "shop", "k8s.pod.name": "shop-1"}), shutdown_on_exit=False
        )
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        logger = logging.getLogger("shipped")
        logger.propagate = False
        logger.addHandler(LoggingHandler(logger_provider=provider))
        before = time.time()
        logger.warning("the shelf is empty")
        provider.shutdown()
        assert stored() == [("local", "alice", "shop", "the shelf is empty")]
        row = LogLine.objects.get()
        assert row.pod == "shop-1"
        assert int(before * 1000) <= row.time <= time.time() * 1000

    def test_json_and_gzip(self, client, staff):
        attributes = [
            {"key": name, "value": {"stringValue": value}}
            for name, value in (
                ("k8s.namespace.name", "shop"),
                ("k8s.deployment.name", "web"),
                ("k8s.cluster.name", "c1"),
            )
        ]
        record = {"timeUnixNano": "1700000000000000000", "body": {"kvlistValue": {"values": []}}, "traceId": "5b8e"}
        body = {"resourceLogs": [{"resource": {"attributes": attributes}, "scopeLogs": [{"logRecords": [record]}]}]}
        answer = client.post(
            "/v1/logs",
            gzip.compress(json.dumps(body).encode()),
            content_type="application/json",
            headers={"authorization": f"Bearer {accounts.token_of(staff)}", "content-encoding": "gzip"},
        )
        assert (answer.status_code, answer.json()) == (200, {"partialSuccess": {}})
        assert stored()[0][:3] == ("c1", "shop", "web")

    def test_what_is_sent_again_is_stored_once_with_severity_and_trace(self, client, alice, as_alice):
        message = ExportLogsServiceRequest()
        records = message.resource_logs.add().scope_logs.add().log_records
        for nanoseconds in (5, 5, 6, 0):
            at = nanoseconds and 1700000000_000000000 + nanoseconds
            record = records.add(time_unix_nano=at, severity_text="WARN")
            record.body.string_value, record.trace_id = "one", bytes.fromhex("5b8e" * 8)
        headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}
        for expected in (4, 5):  # nobody can say whether a line without a time is the same one
            answer = client.post(
                "/v1/logs", message.SerializeToString(), content_type="application/x-protobuf", headers=headers
            )
            assert (answer.status_code, LogLine.objects.count()) == (200, expected)
        assert len(as_alice.call("get", f"{URL}?q=attributes.trace_id:{'5b8e' * 8}").json()) == 5
        assert as_alice.call("get", f"{URL}?limit=1").json()[0]["attributes"]["severity"] == "WARN"


class TestLoki:
    @pytest.fixture
    def push(self, client, alice):
        def send(data: bytes, kind: str, **headers):
            given = {"authorization": f"Bearer {accounts.token_of(alice)}", **headers}
            return client.post("/loki/api/v1/push", data, content_type=kind, headers=given)

        return send

    def test_json(self, push):
        values = [["1700000000000000000", "one"], ["1700000001000000000", "two", {"pod": "p1"}]]
        body = {"streams": [{"stream": {"job": "shop/web", "namespace": "ignored"}, "values": values}]}
        assert push(json.dumps(body).encode(), "application/json").status_code == 204
        assert stored() == [("local", "alice", "web", "one"), ("local", "alice", "web", "two")]

    @pytest.mark.parametrize("value", [5, None, 0.5, {"a": [1]}, "\ud800\0"], ids=str)
    @pytest.mark.parametrize("name", few(["log_type", "app", "pod"], 1))
    def test_attributes_of_a_line_are_stored_as_text(self, push, name, value):
        body = {"streams": [{"stream": {"job": "web"}, "values": [["1700000000000000000", "one", {name: value}]]}]}
        assert push(json.dumps(body).encode(), "application/json").status_code == 204
        assert LogLine.objects.get().log == "one"

    @pytest.mark.parametrize("name", ["log_type", "app", "filename"])
    def test_labels_that_cannot_be_stored_are_cleaned(self, push, name):
        """A lone surrogate, escaped, in a protobuf message."""
        message = PushRequest()
        message.streams.add(labels=f'{{{name}="x\\ud800"}}').entries.add(line="one")
        data = bytes(cramjam.snappy.compress_raw(message.SerializeToString()))
        assert push(data, "application/x-protobuf").status_code == 204
        assert LogLine.objects.get().log == "one"

    @pytest.mark.parametrize("value", ["[1]", "'12'", "{}", "null"])
    def test_what_holds_no_entry_that_can_be_read_is_answered_400(self, push, value):
        row = value.replace("'", '"').encode()
        answer = push(b'{"streams": [{"stream": {"a": "b"}, "values": [%s]}]}' % row, "application/json")
        assert (answer.status_code, "can be read" in answer.json()["message"]) == (400, True)

    def test_what_is_sent_again_is_stored_once_and_equal_lines_twice(self, push, as_alice):
        """The same stream, time and text, as Loki does it; a request that was cut off is sent again as a whole."""
        values = [["1700000000000000001", "one"], ["1700000000000000001", "one"], ["1700000000000000002", "one"]]
        streams = [{"stream": {"app": "web"}, "values": values}, {"stream": {"app": "db"}, "values": values[:1]}]
        body = {"streams": streams}
        for _again in range(2):
            assert push(json.dumps(body).encode(), "application/json").status_code == 204
            assert LogLine.objects.count() == 4
        message = PushRequest()
        entry = message.streams.add(labels='{app="web"}').entries.add(line="one")
        entry.timestamp.seconds, entry.timestamp.nanos = 1700000000, 1
        assert push(bytes(cramjam.snappy.compress_raw(message.SerializeToString())), "application/x-protobuf")
        assert LogLine.objects.count() == 4, "the same line in the other form"

    def test_the_same_line_of_two_users_is_two(self, push, client, bob):
        body = json.dumps({"streams": [{"stream": {"app": "web"}, "values": [["1700000000000000001", "one"]]}]})
        push(body.encode(), "application/json")
        headers = {"authorization": f"Bearer {accounts.token_of(bob)}"}
        client.post("/loki/api/v1/push", body, content_type="application/json", headers=headers)
        assert {namespace for _cluster, namespace, *_more in stored()} == {"alice", "bob"}

    def test_snappy_protobuf_as_promtail_sends_it(self, push):
        message = PushRequest()
        stream = message.streams.add(labels='{app="web", filename="/var/log/\\"odd\\".log"}')
        entry = stream.entries.add(line="one")
        entry.timestamp.seconds = 1700000000
        data = bytes(cramjam.snappy.compress_raw(message.SerializeToString()))
        assert push(data, "application/x-protobuf").status_code == 204
        row = LogLine.objects.get()
        assert (row.deployment, row.pod, row.time) == ("web", '/var/log/"odd".log', 1700000000000)

    def test_basic_with_the_token_as_password(self, client, alice):
        client.defaults["HTTP_AUTHORIZATION"] = (
            "Basic " + __import__("base64").b64encode(f"any:{accounts.token_of(alice)}".encode()).decode()
        )
        assert client.post("/loki/api/v1/push", b'{"streams": []}', content_type="application/json").status_code == 204


@pytest.mark.parametrize("endpoint", ["/v1/logs", "/loki/api/v1/push"])
class TestIntakeEndpoints:
    @pytest.fixture
    def headers(self, alice):
        return {"authorization": f"Bearer {accounts.token_of(alice)}"}

    def test_without_a_token_it_is_401_and_by_another_method_405(self, client, endpoint):
        assert client.post(endpoint, b"{}", content_type="application/json").status_code == 401
        assert client.get(endpoint).status_code == 405

    @pytest.mark.parametrize("kind", ["application/json", "application/x-protobuf"])
    @pytest.mark.parametrize("data", few([b"{", b"[]", b"\xff\xff\xff", b"null"], 2))
    def test_an_unreadable_body_is_answered_400(self, client, endpoint, headers, kind, data):
        answer = client.post(endpoint, data, content_type=kind, headers=headers)
        assert (answer.status_code, bool(answer.json()["message"])) == (400, True)
        assert not LogLine.objects.exists()

    def test_a_decompression_bomb_is_refused(self, client, endpoint, headers):
        data = gzip.compress(b"0" * (33 << 20))
        answer = client.post(
            endpoint, data, content_type="application/json", headers={**headers, "content-encoding": "gzip"}
        )
        assert answer.status_code == 400
        assert "32 MiB" in answer.json()["message"]
        other = client.post(endpoint, b"x", content_type="text/plain", headers={**headers, "content-encoding": "br"})
        assert (other.status_code, other["Accept-Encoding"]) == (415, "gzip, deflate, zstd, snappy")

    def test_a_body_of_many_empty_elements_is_refused(self, client, endpoint, headers):
        """Two bytes for each; parsed, they would take gigabytes."""
        given = {"content_type": "application/x-protobuf", "headers": headers}
        bomb = b"\x0a\x80\xad\xe2\x04" + b"\x12\x00" * 5_000_000
        data = bytes(cramjam.snappy.compress_raw(bomb)) if "loki" in endpoint else bomb
        answer = client.post(endpoint, data, **given)
        problem = "250000 records" if "loki" in endpoint else "50000 groups of records"
        assert (answer.status_code, problem in answer.json()["message"]) == (400, True)
        assert not LogLine.objects.exists()
        bomb = b'{"resourceLogs": [%s{}], "streams": [%s{}]}' % (b"{}," * 250_000, b"{}," * 250_000)
        answer = client.post(endpoint, bomb, **{**given, "content_type": "application/json"})
        assert (answer.status_code, "500000 values" in answer.json()["message"]) == (400, True)

    def test_a_record_that_is_too_long_is_cut(self, client, endpoint, headers):
        long = "x" * (5 << 20)
        if "loki" in endpoint:
            message = PushRequest()
            message.streams.add(labels='{app="web"}').entries.add(line=long)
            data = bytes(cramjam.snappy.compress_raw(message.SerializeToString()))
        else:
            message = ExportLogsServiceRequest()
            message.resource_logs.add().scope_logs.add().log_records.add().body.string_value = long
            data = message.SerializeToString()
        answer = client.post(endpoint, data, content_type="application/x-protobuf", headers=headers)
        assert answer.status_code == (204 if "loki" in endpoint else 200)
        [(*_names, text)] = stored()
        assert text == "x" * (accept.MAX_CHARACTERS - len(accept.CUT)) + accept.CUT

    def test_multi_member_gzip_is_accepted_and_truncated_gzip_refused(self, client, endpoint, headers):
        rows = [["1700000000000000000", "one"]]
        body = {"streams": [{"stream": {"app": "web"}, "values": rows}]}
        if "loki" not in endpoint:
            record = {"body": {"stringValue": "one"}}
            body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
        text = json.dumps(body).encode()
        packed = gzip.compress(text[:20]) + gzip.compress(text[20:])
        given = {"content_type": "application/json", "headers": {**headers, "content-encoding": "gzip"}}
        assert client.post(endpoint, packed[:-3], **given).status_code == 400
        assert not LogLine.objects.exists()
        assert client.post(endpoint, packed, **given).status_code in (200, 204)
        assert LogLine.objects.get().log == "one"

    def test_without_the_store_the_shipper_is_told_to_retry(self, client, endpoint, headers, monkeypatch):
        def away(*_):
            raise Fault("the log store is not available")

        monkeypatch.setattr(accept, "store", away)
        body = b'{"streams": []}' if "loki" in endpoint else b"{}"
        answer = client.post(endpoint, body, content_type="application/json", headers=headers)
        assert (answer.status_code, answer["Retry-After"]) == (503, "5")


@pytest.mark.parametrize("text", ["app=web", "{app=web}", '{app="web}', '{a="b" c="d"}'])
def test_what_cannot_be_read_of_labels_is_kept_as_a_label(text):
    assert labels_of('{a="b"}') == {"a": "b"}
    assert labels_of(text)["labels"]
