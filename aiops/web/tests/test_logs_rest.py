"""Log lines over HTTP: our REST, OTLP from the OpenTelemetry exporter, Loki push; permissions."""

from __future__ import annotations

import gzip
import json
import logging
import time
from urllib.parse import quote

import cramjam
import pytest
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from accounts import lifecycle as accounts
from aiops import logstore
from aiops.intake import accept, bodies
from aiops.models import LogLine
from aiops.wire import payloads, subjects
from aiops.wire.loki import PushRequest, labels_of
from kernel import bus
from kernel.errors import Fault
from mlp.tests.page_world import visitor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.begins(0.5)]  # a minute: not at the very end

URL = "aiops/logs"


def stored() -> list[tuple]:
    return list(LogLine.objects.order_by("pk").values_list("cluster", "namespace", "deployment", "log"))


class TestPost:
    def test_one_or_many_lines_are_stored(self, as_alice):
        assert as_alice.call("post", URL, {"log": "one", "deployment": "web"}).json() == {"taken": 1, "new": 1}
        body = [{"log": "two", "_id": "mine", "time": 1700000000}, {"log": "three", "time": "2023-11-14T22:13:20Z"}]
        assert as_alice.call("post", URL, body).json() == {"taken": 2, "new": 2}
        assert as_alice.call("post", URL, body[0]).json() == {"taken": 1, "new": 0}
        assert stored()[:2] == [("local", "alice", "web", "one"), ("local", "alice", "", "two")]
        assert set(LogLine.objects.exclude(log="one").values_list("time", flat=True)) == {1700000000000}

    def test_ndjson_is_accepted(self, client, alice):
        body = b'{"log": "one"}\n\n{"log": "two"}\n'
        headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}
        answer = client.post(f"/api/v1/{URL}", body, content_type="application/x-ndjson", headers=headers)
        assert answer.json() == {"taken": 2, "new": 2}
        answer = client.post(f"/api/v1/{URL}", b'{"log": "x"}\n{', content_type="application/x-ndjson", headers=headers)
        assert answer.json() == {
            "taken": 1, "new": 1, "refused": 1, "problems": [{"line": 2, "msg": "line: is not valid JSON"}],
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "log"),
            ({"log": 1}, "log"),
            ({"log": "x", "time": "soon"}, "time"),
            ({"log": "x", "time": True}, "time"),
            ({"log": "x", "time": int("9" * 400)}, "time"),
            ({"log": "x", "time": "²"}, "time"),
            ({"log": "x", "time": "٣"}, "time"),
            ({"log": "x", "namespace_name": "bob"}, "namespace_name"),
            ({"log": "x", "cluster_id": "c1"}, "cluster_id"),
            ({"log": "x", "attributes": [1]}, "attributes"),
            (5, "body"),
        ],
    )
    def test_an_invalid_line_is_refused_by_name_and_the_others_are_stored(self, as_alice, body, field):
        assert as_alice.refused("post", URL, body).startswith(f"{field}:")
        assert not LogLine.objects.exists()
        answer = as_alice.call("post", URL, [{"log": "good"}, body, {"log": "too"}]).json()
        assert (answer["taken"], answer["new"], answer["refused"]) == (2, 2, 1)
        [problem] = answer["problems"]
        assert (problem["line"], problem["msg"].startswith(f"{field}:")) == (2, True)
        assert {text for *_names, text in stored()} == {"good", "too"}
        assert as_alice.refused("post", URL, [body, body]).startswith(f"line 1: {field}:")

    @pytest.mark.parametrize(
        "body", [b"[1", b"[1,]", b"[1 2]", b"[1]x", b"[" * 100_000, b'[{"log": NaN}]', b"\xff", b" ", b'[{"log": "x"}'],
        ids=lambda body: body[:9].decode("latin-1"),
    )  # fmt: skip
    def test_a_body_that_is_no_json_stores_nothing(self, client, alice, body):
        """Also not the lines before the place: the sender may send them again."""
        headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}
        answer = client.post(f"/api/v1/{URL}", body, content_type="application/json", headers=headers)
        assert (answer.status_code, answer.json()["msg"]) == (403, "body: not valid JSON")
        assert not LogLine.objects.exists()

    @pytest.mark.parametrize("form", ["json", "ndjson"])
    def test_a_batch_may_have_any_number_of_lines(self, client, alice, form):
        """As Fluent Bit sends them, which drops for good what is refused."""
        rows = [{"date": 1700000000.5 + number, "log": f"line {number}", "more": number} for number in range(12_000)]
        rows[11_000]["log"] = None
        body = json.dumps(rows) if form == "json" else "\n".join(map(json.dumps, rows))
        headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}
        kind = "application/json" if form == "json" else "application/x-ndjson"
        answer = client.post(f"/api/v1/{URL}", body, content_type=kind, headers=headers)
        assert (answer.status_code, answer.json()["taken"], answer.json()["problems"][0]["line"]) == (
            200,
            11_999,
            11_001,
        )
        assert LogLine.objects.count() == 11_999

    def test_a_very_large_array_is_read_piece_by_piece(self, client, alice, monkeypatch):
        monkeypatch.setattr(bodies, "MOST_ELEMENT", 300)
        monkeypatch.setattr(bodies, "BLOCK", 90)
        monkeypatch.setattr(bodies, "KEPT", 3)
        headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}
        texts = ["x" * number for number in range(1, 250, 7)]
        body = json.dumps([{"log": text} for text in texts], indent=1)
        answer = client.post(f"/api/v1/{URL}", body, content_type="application/json", headers=headers)
        assert answer.json()["taken"] == len(texts)
        assert [text for *_names, text in stored()] == texts
        body = json.dumps([{"log": "new"}, *({"log": text} for text in texts), {"log": "x" * 400}])
        answer = client.post(f"/api/v1/{URL}", body, content_type="application/json", headers=headers)
        assert answer.json()["msg"] == "body: an element has more than 300 characters"
        assert not LogLine.objects.filter(log="new").exists()

    def test_what_else_a_shipper_says_is_kept_and_found(self, as_alice):
        line = {"message": "paid", "@timestamp": "2023-11-14T22:13:20Z", "level": "info", "order": {"id": 7}, "x": None}
        assert as_alice.call("post", URL, [line, {"log": "other"}]).json() == {"taken": 2, "new": 2}
        [found] = as_alice.call("get", f"{URL}?q=attributes.level:info").json()
        assert (found["log"], found["time"]) == ("paid", 1700000000000)
        assert found["attributes"] == {"level": "info", "order": '{"id": 7}', "x": ""}
        assert as_alice.call("get", f"{URL}?q=attributes.level:warning").json() == []
        assert [one["attributes"] for one in as_alice.call("get", f"{URL}?q=other").json()] == [{}]

    def test_line_ids_are_separate_for_each_user(self, as_alice, as_bob, peer):
        peer.listen(subjects.STORED_LOGS)
        for number, (caller, text) in enumerate([(as_alice, "hers"), (as_bob, "his")], start=1):
            for new in (1, 0):
                answer = caller.call("post", URL, {"log": text, "_id": "7"})
                assert answer.json() == {"taken": 1, "new": new}
            assert [(row["_id"], row["log"]) for row in caller.call("get", URL).json()] == [
                (f"{'alice' if number == 1 else 'bob'}:7", text)
            ]
            (item,) = payloads.decode(peer.wait(subjects.STORED_LOGS, number)[-1])
            assert (item._id, item.log) == (f"{item.namespace_name}:7", text)

    def test_a_long_id_is_recognized_again(self, as_alice):
        for name, new in (("x" * 100, 1), ("x" * 100, 0), ("x" * 99 + "y", 1)):
            assert as_alice.call("post", URL, {"log": "x", "_id": name}).json()["new"] == new
        assert all(id.startswith("alice:") for id in LogLine.objects.values_list("line_id", flat=True))

    def test_operators_lines_keep_their_ids(self, as_alice, as_staff):
        as_alice.call("post", URL, {"log": "hers", "_id": "7"})
        one = {"log": "x", "_id": "7", "namespace_name": "shop"}
        for new in (1, 0):
            assert as_staff.call("post", URL, one).json() == {"taken": 1, "new": new}
        for body in (
            {**one, "namespace_name": "bank"},
            {**one, "cluster_id": "c1"},
            {**one, "_id": "alice:7"},
        ):
            assert as_staff.refused("post", URL, body).startswith("_id:")
        assert set(LogLine.objects.values_list("line_id", "log")) == {("alice:7", "hers"), ("7", "x")}
        both = as_staff.call("post", URL, [{"log": "y", "_id": "8"}, {**one, "_id": "8"}]).json()
        assert (both["taken"], both["problems"]) == (1, [{"line": 2, "msg": "_id: 8 is a line of another namespace"}])

    def test_operators_may_name_any_namespace(self, as_staff):
        as_staff.call("post", URL, {"log": "x", "namespace_name": "shop", "cluster_id": "c1"})
        assert stored() == [("c1", "shop", "", "x")]

    def test_without_nats_it_is_a_fault_and_nothing_is_stored(self, as_alice, monkeypatch):
        def away(*_):
            raise Fault("the message bus is not available; try again later")

        monkeypatch.setattr(bus, "check", away)
        answer = as_alice.call("post", URL, {"log": "x"})
        assert (answer.status_code, set(answer.json())) == (503, {"msg"})
        assert not LogLine.objects.exists()


class TestSearch:
    @pytest.fixture(autouse=True)
    def lines(self, alice):
        logstore.get().append(
            [
                accept.line("connected", namespace="alice", deployment="fit", at_ms=1000, id="a"),
                accept.line("connection refused", namespace="alice", deployment="web", at_ms=2000, id="b"),
                accept.line("of the platform", namespace="platform", deployment="web", at_ms=3000, id="c"),
            ]
        )
        logstore.get().update_many([("b", {"anomaly_level": "Anomaly", "opnilog_confidence": 0.5})])

    def ids(self, caller, query: str = "") -> list[str]:
        return [row["_id"] for row in caller.call("get", f"{URL}?{query}").json()]

    def test_users_see_their_own_lines_and_staff_all_lines(self, as_alice, as_bob, as_staff):
        assert self.ids(as_alice) == ["b", "a"]
        assert self.ids(as_bob) == []
        assert self.ids(as_staff) == ["c", "b", "a"]
        assert self.ids(as_bob, "namespace=alice") == []

    def test_a_namespace_of_the_same_name_in_another_cluster_is_not_the_users(self, as_alice, as_staff):
        as_staff.call(
            "post", URL, {"_id": "d", "log": "of c1", "namespace_name": "alice", "cluster_id": "c1", "time": 1}
        )
        assert self.ids(as_alice) == ["b", "a"]
        assert self.ids(as_alice, "cluster=c1") == []
        assert self.ids(as_staff, "cluster=c1") == ["d"]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("level=Anomaly", ["b"]), ("deployment=fit", ["a"]), ("q=refused+OR+connected", ["b", "a"]),
            ("q=connection+refused", ["b"]), ("since=1500", ["b"]), ("until=1500", ["a"]), ("limit=1", ["b"]),
            ("limit=1&offset=1", ["a"]), ("cluster=other", []),
        ],
    )  # fmt: skip
    def test_filters(self, as_alice, query, expected):
        assert self.ids(as_alice, query) == expected

    @pytest.mark.parametrize(
        "query",
        [
            "level=Odd", "q=(", "since=soon", "since=", "until=", "until=999999999999999",
            "more=1", "limit=0", "offset=9001",
            "cluster=%00", "namespace=a%00", "deployment=%00", "level=%00", "since=%00",
        ],
    )  # fmt: skip
    def test_an_invalid_filter_is_named(self, as_alice, query):
        assert as_alice.refused("get", f"{URL}?{query}").startswith(query.split("=")[0])

    @pytest.mark.parametrize(
        ("q", "problem"),
        [
            ("a)", 'unexpected ")" at position 2'),
            ("a AND OR b", 'unexpected "OR" at position 7'),
            ("a &&  || b", 'unexpected "||" at position 7'),
            ("()", 'unexpected ")" at position 2'),
            ("a ::", 'unexpected ":" at position 3'),
            ("refused AND", 'expected a search term after "AND" at position 9'),
            ("deployment:", 'expected a search term after "deployment" at position 1'),
            ("a NOT", 'expected a search term after "NOT" at position 3'),
            ("a OR (b", "the parenthesis at position 6 is not closed"),
            ('a "b c', "the quotation mark at position 3 is not closed"),
            ("a conn*", '"conn*" at position 3: wildcards, ranges and fuzzy search are not supported'),
            ("a error:timeout", 'unknown field "error" at position 3; put quotation marks around a text with a colon'),
            ("_exists_:no", 'unknown field "no" at position 10; put quotation marks around a text with a colon'),
            ("time:soon", 'the field time needs a number, not "soon" at position 6'),
            ("x" * 60 + "*", '"' + "x" * 49 + '…" at position 1: wildcards, ranges and fuzzy search are not supported'),
        ],
    )
    def test_a_query_that_cannot_be_parsed_names_the_place(self, as_alice, alice, q, problem):
        assert as_alice.refused("get", f"{URL}?q={quote(q)}") == f"q: {problem}"

    def test_the_place_in_a_query_is_named_on_the_page_in_the_users_language(self, alice):
        page = visitor(alice)
        page.cookies["django_language"] = "zh-hans"
        assert "位置 9" in page.get(f"/aiops?q={quote('refused AND')}").content.decode()

    @pytest.mark.parametrize(
        "q",
        [
            "_id:\0", "a\0b", "(" * 900, "!" * 900, "log:" * 240 + "x", "NOT " * 240 + "x", "x " * 501, "x" * 1001,
            "time:" + "9" * 30, "opnilog_confidence:nan", "opnilog_confidence:1e999",
        ],
        ids=lambda q: q[:8].replace("\0", "NUL"),
    )  # fmt: skip
    def test_invalid_queries_are_refused_by_rest_and_the_pages(self, as_alice, alice, q):
        assert as_alice.refused("get", f"{URL}?q={quote(q)}").startswith("q:")
        page = visitor(alice)
        assert [page.get(f"/aiops{path}?q={quote(q)}").status_code for path in ("", "/templates")] == [403, 403]

    def test_a_line_has_all_its_fields_and_the_total_is_in_a_header(self, as_alice):
        answer = as_alice.call("get", f"{URL}?limit=1")
        assert answer["X-Total-Count"] == "2"
        assert {key: answer.json()[0][key] for key in ("anomaly_level", "opnilog_confidence", "masked_log")} == {
            "anomaly_level": "Anomaly",
            "opnilog_confidence": 0.5,
            "masked_log": "",
        }


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
        logger.warning("the shelf is empty")
        provider.shutdown()
        assert stored() == [("local", "alice", "shop", "the shelf is empty")]
        row = LogLine.objects.get()
        assert row.pod == "shop-1"
        assert abs(row.time - time.time() * 1000) < 60_000

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
    @pytest.mark.parametrize("name", ["log_type", "app", "pod"])
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

    @pytest.mark.parametrize("value", ["[Infinity, 'x']", "[NaN, 'x']", "['soon', 'x']", "[[], 'x']", "[1]", "'12'"])
    def test_an_invalid_entry_is_answered_400(self, push, value):
        row = value.replace("'", '"')
        answer = push(b'{"streams": [{"stream": {"a": "b"}, "values": [%s]}]}' % row.encode(), "application/json")
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("no push request:")

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


@pytest.mark.parametrize("door", ["/v1/logs", "/loki/api/v1/push"])
class TestIntakeEndpoints:
    @pytest.fixture
    def headers(self, alice):
        return {"authorization": f"Bearer {accounts.token_of(alice)}"}

    def test_without_a_token_it_is_401_and_by_another_method_405(self, client, door):
        assert client.post(door, b"{}", content_type="application/json").status_code == 401
        assert client.get(door).status_code == 405

    @pytest.mark.parametrize("kind", ["application/json", "application/x-protobuf"])
    @pytest.mark.parametrize("data", [b"{", b"[]", b"\xff\xff\xff", b"null"])
    def test_an_unreadable_body_is_answered_400(self, client, door, headers, kind, data):
        answer = client.post(door, data, content_type=kind, headers=headers)
        assert (answer.status_code, bool(answer.json()["message"])) == (400, True)
        assert not LogLine.objects.exists()

    def test_a_decompression_bomb_is_refused(self, client, door, headers):
        data = gzip.compress(b"0" * (33 << 20))
        answer = client.post(
            door, data, content_type="application/json", headers={**headers, "content-encoding": "gzip"}
        )
        assert answer.status_code == 400
        assert "32 MiB" in answer.json()["message"]

    def test_a_body_of_many_empty_elements_is_refused(self, client, door, headers):
        """Two bytes for each; parsed, they would take gigabytes."""
        given = {"content_type": "application/x-protobuf", "headers": headers}
        bomb = b"\x0a\x80\xad\xe2\x04" + b"\x12\x00" * 5_000_000
        data = bytes(cramjam.snappy.compress_raw(bomb)) if "loki" in door else bomb
        answer = client.post(door, data, **given)
        problem = "250000 records" if "loki" in door else "50000 groups of records"
        assert (answer.status_code, problem in answer.json()["message"]) == (400, True)
        assert not LogLine.objects.exists()
        bomb = b'{"resourceLogs": [%s{}], "streams": [%s{}]}' % (b"{}," * 250_000, b"{}," * 250_000)
        answer = client.post(door, bomb, **{**given, "content_type": "application/json"})
        assert (answer.status_code, "500000 values" in answer.json()["message"]) == (400, True)

    def test_a_record_has_a_size(self, client, door, headers):
        long = "x" * (5 << 20)
        if "loki" in door:
            message = PushRequest()
            message.streams.add(labels='{app="web"}').entries.add(line=long)
            data = bytes(cramjam.snappy.compress_raw(message.SerializeToString()))
        else:
            message = ExportLogsServiceRequest()
            message.resource_logs.add().scope_logs.add().log_records.add().body.string_value = long
            data = message.SerializeToString()
        answer = client.post(door, data, content_type="application/x-protobuf", headers=headers)
        if "loki" in door:
            assert (answer.status_code, "4 MiB" in answer.json()["message"]) == (400, True)
        else:  # OTLP has an answer for single records: the others are stored
            message.resource_logs[0].scope_logs[0].log_records.add().body.string_value = "short"
            data = message.SerializeToString()
            answer = client.post(door, data, content_type="application/x-protobuf", headers=headers)
            done = ExportLogsServiceResponse.FromString(answer.content).partial_success
            assert (answer.status_code, done.rejected_log_records, "4 MiB" in done.error_message) == (200, 1, True)
            assert stored() == [("local", "alice", "", "short")]

    def test_multi_member_gzip_is_accepted_and_truncated_gzip_refused(self, client, door, headers):
        rows = [["1700000000000000000", "one"]]
        body = {"streams": [{"stream": {"app": "web"}, "values": rows}]}
        if "loki" not in door:
            record = {"body": {"stringValue": "one"}}
            body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
        text = json.dumps(body).encode()
        packed = gzip.compress(text[:20]) + gzip.compress(text[20:])
        given = {"content_type": "application/json", "headers": {**headers, "content-encoding": "gzip"}}
        assert client.post(door, packed[:-3], **given).status_code == 400
        assert not LogLine.objects.exists()
        assert client.post(door, packed, **given).status_code in (200, 204)
        assert LogLine.objects.get().log == "one"

    def test_without_the_store_the_shipper_is_told_to_retry(self, client, door, headers, monkeypatch):
        def away(*_):
            raise Fault("the log store is not available")

        monkeypatch.setattr(accept, "store", away)
        body = b'{"streams": []}' if "loki" in door else b"{}"
        answer = client.post(door, body, content_type="application/json", headers=headers)
        assert (answer.status_code, answer["Retry-After"]) == (503, "5")


@pytest.mark.parametrize("text", ["app=web", "{app=web}", '{app="web}', "", '{a="b" c="d"}'])
def test_invalid_labels_are_refused(text):
    with pytest.raises(ValueError):
        labels_of(text)
