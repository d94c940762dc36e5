"""Log lines over REST: permissions, bodies of many lines, search."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from accounts import lifecycle as accounts
from aiops import logstore
from aiops.intake import accept, bodies
from aiops.models import LogLine
from aiops.wire import payloads, subjects
from kernel import bus
from kernel.errors import Fault
from mlp.tests.page_world import visitor
from mlp.tests.tiers import few

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
        few(
            [
                ({}, "log"),
                ({"log": ""}, "log"),
                ({"log": None, "pod_name": "web-1", "time": 1700000000}, "log"),
                ({"log": "x", "namespace_name": "bob"}, "namespace_name"),
                ({"log": "x", "cluster_id": "c1"}, "cluster_id"),
                (5, "body"),
            ],
            3,
        ),
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
        "body", few([b"[1", b"[1,]", b"[1 2]", b"[1]x", b"[" * 100_000, b"\xff", b" ", b'[{"log": "x"}'], 3),
        ids=lambda body: body[:9].decode("latin-1"),
    )  # fmt: skip
    def test_a_body_that_is_no_json_stores_nothing(self, client, alice, body):
        """Also not the lines before the place: the sender may send them again."""
        headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}
        answer = client.post(f"/api/v1/{URL}", body, content_type="application/json", headers=headers)
        assert (answer.status_code, answer.json()["msg"]) == (403, "body: not valid JSON")
        assert not LogLine.objects.exists()

    @pytest.mark.parametrize("form", few(["json", "ndjson"], 1))
    def test_a_batch_may_have_any_number_of_lines(self, client, alice, form):
        """As Fluent Bit sends them, which drops for good what is refused."""
        rows = [{"date": 1700000000.5 + number, "log": f"line {number}", "more": number} for number in range(12_000)]
        rows[11_000] = {"date": 1700000000.5, "log": None}
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
        monkeypatch.setattr(bodies, "MAX_ELEMENT", 300)
        monkeypatch.setattr(bodies, "BLOCK", 90)
        monkeypatch.setattr(bodies, "KEPT", 3)
        headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}
        texts = ["x" * number for number in range(1, 250, 7)]
        body = json.dumps([{"log": text} for text in texts], indent=1)
        answer = client.post(f"/api/v1/{URL}", body, content_type="application/json", headers=headers)
        assert answer.json()["taken"] == len(texts)
        assert [text for *_names, text in stored()] == texts
        body = json.dumps([*({"log": text} for text in texts), {"log": "x" * 400, "n": [[{}]]}, {"log": "end"}])
        answer = client.post(f"/api/v1/{URL}", body, content_type="application/json", headers=headers)
        assert answer.json()["taken"] == len(texts) + 2
        assert [text for *_names, text in stored()][-2:] == ["x" * 400, "end"]

    def test_what_else_a_shipper_says_is_kept_and_found(self, as_alice):
        line = {"message": "paid", "@timestamp": "2023-11-14T22:13:20Z", "level": "info", "order": {"id": 7}, "x": None}
        assert as_alice.call("post", URL, [line, {"log": "other"}]).json() == {"taken": 2, "new": 2}
        [entry] = as_alice.call("get", f"{URL}?q=attributes.level:info").json()
        assert (entry["log"], entry["time"]) == ("paid", 1700000000000)
        assert entry["attributes"] == {"level": "info", "order": '{"id": 7}', "x": ""}
        assert as_alice.call("get", f"{URL}?q=attributes.level:warning").json() == []
        assert [row["attributes"] for row in as_alice.call("get", f"{URL}?q=other").json()] == [{}]

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
        line = {"log": "x", "_id": "7", "namespace_name": "shop"}
        for new in (1, 0):
            assert as_staff.call("post", URL, line).json() == {"taken": 1, "new": new}
        for body in (
            {**line, "namespace_name": "bank"},
            {**line, "cluster_id": "c1"},
            {**line, "_id": "alice:7"},
        ):
            assert as_staff.refused("post", URL, body).startswith("_id:")
        assert set(LogLine.objects.values_list("line_id", "log")) == {("alice:7", "hers"), ("7", "x")}
        both = as_staff.call("post", URL, [{"log": "y", "_id": "8"}, {**line, "_id": "8"}]).json()
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
        few([
            "level=Odd", "q=(", "since=soon", "since=", "until=", "until=999999999999999",
            "more=1", "limit=0", "offset=9001",
            "cluster=%00", "namespace=a%00", "deployment=%00", "level=%00", "since=%00",
        ], 5),
    )  # fmt: skip
    def test_an_invalid_filter_is_named(self, as_alice, query):
        assert as_alice.refused("get", f"{URL}?{query}").startswith(query.split("=")[0])

    @pytest.mark.parametrize(
        ("q", "problem"),
        few(
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
                (
                    "a conn~",
                    '"conn~" at position 3: ranges, regular expressions and fuzzy search are not supported; put '
                    "quotation marks around a text",
                ),
                (
                    "a error:timeout",
                    'unknown field "error" at position 3; put quotation marks around a text with a colon',
                ),
                ("_exists_:no", 'unknown field "no" at position 10; put quotation marks around a text with a colon'),
                ("time:soon", 'the field time needs a number, not "soon" at position 6'),
                (
                    "x" * 60 + "~",
                    '"' + "x" * 49 + '…" at position 1: ranges, regular expressions and fuzzy search are not'
                    " supported; put quotation marks around a text",
                ),
            ],
            5,
        ),
    )
    def test_a_query_that_cannot_be_parsed_names_the_place(self, as_alice, alice, q, problem):
        assert as_alice.refused("get", f"{URL}?q={quote(q)}") == f"q: {problem}"

    def test_the_place_in_a_query_is_named_on_the_page_in_the_users_language(self, alice):
        page = visitor(alice)
        page.cookies["django_language"] = "zh-hans"
        assert "位置 9" in page.get(f"/aiops?q={quote('refused AND')}").content.decode()

    @pytest.mark.parametrize(
        "q",
        few([
            "_id:\0", "a\0b", "(" * 900, "!" * 900, "log:" * 240 + "x", "NOT " * 240 + "x", "x " * 501, "x" * 1001,
            "time:" + "9" * 30, "opnilog_confidence:nan", "opnilog_confidence:1e999",
        ], 4),
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
