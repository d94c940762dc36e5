"""Odd log lines over REST: Fluent Bit and others drop a batch for good that is refused, so each line is stored."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest
from django.db import connection
from django.test import Client

from accounts import lifecycle as accounts
from aiops.intake import accept, bodies
from aiops.models import LogLine, LogMinute, Workload
from aiops.web import logs_api
from kernel.errors import Fault
from mlp.tests.tiers import few

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.begins(0.5)]

PATH = "/api/v1/aiops/logs"
MS = 1700000000_000
LONG = "x" * 1_200_000
CUT = LONG[: accept.MAX_CHARACTERS - len(accept.CUT)] + accept.CUT


def texts() -> list[str]:
    return list(LogLine.objects.order_by("pk").values_list("log", flat=True))


@pytest.fixture
def post(client, alice):
    def send(body, kind: str = "application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"authorization": f"Bearer {accounts.token_of(alice)}", **headers}
        return client.post(PATH, data, content_type=kind, headers=given)

    return send


@pytest.mark.parametrize(
    ("line", "text", "fields", "said"),
    few([
        ({"log": "x", "pod_name": None, "time": None, "attributes": None, "_id": None}, "x", {}, ""),
        ({"log": {"a": [1]}}, '{"a": [1]}', {}, "log"),
        ({"message": 7.5}, "7.5", {}, "log"),
        ({"log": False}, "false", {}, "log"),
        ({"log": None, "msg": "second"}, "second", {}, ""),
        ({"log": "", "level": "info"}, '{"level": "info"}', {}, "log"),
        ({"body": "of OpenTelemetry"}, "of OpenTelemetry", {}, ""),
        ({"cpu": 1.5, "host": "a"}, '{"cpu": 1.5, "host": "a"}', {}, "log"),
        ({"log": "a\0b\ud83dc"}, "a\ufffdb\ufffdc", {}, "log"),
        ({"log": LONG}, CUT, {}, "log"),
        ({"log": "x", "deployment": 7}, "x", {"deployment": "7"}, "deployment"),
        ({"log": "x", "deployment": "d" * 300}, "x", {"deployment": "d" * 253}, "deployment"),
        ({"log": "x", "pod_name": ["a"]}, "x", {"pod": '["a"]'}, "pod_name"),
        ({"log": "x", "attributes": [1]}, "x", {"attributes": {"attributes": "[1]"}}, "attributes"),
        ({"log": "x", "k\ud83d": "v\0"}, "x", {"attributes": {"k\ufffd": "v\ufffd"}}, "attributes"),
        ({"log": "x", "timestamp": "soon"}, "x", {"attributes": {"timestamp": "soon"}}, "timestamp"),
        ({"log": "x", "time": {"a": 1}}, "x", {"attributes": {"time": '{"a": 1}'}}, "time"),
        ({"log": "x", "date": True, "timestamp": 1700000000}, "x", {"time": MS, "attributes": {"date": "true"}}, ""),
        ({"log": "x", "@timestamp": "14/Nov/2023:22:13:20 +0000"}, "x", {"time": MS}, ""),
        ({"log": "x", "date": "Tue, 14 Nov 2023 22:13:20 GMT"}, "x", {"time": MS}, ""),
        ({"log": "x", "_id": 7}, "x", {"line_id": "alice:7"}, "_id"),
    ], 10),
    ids=lambda value: repr(value)[:60],
)  # fmt: skip
def test_what_is_odd_in_a_line_is_stored_and_named(post, line, text, fields, said):
    answer = post([{"log": "good"}, line, {"log": "end"}])
    assert (answer.status_code, answer.json()["taken"], answer.json().get("refused")) == (200, 3, None)
    assert texts() == ["good", text, "end"]
    row = LogLine.objects.all().order_by("pk")[1]
    assert {name: getattr(row, name) for name in fields} == fields
    problems = answer.json().get("problems", [])
    assert [(problem["line"], problem["stored"], problem["msg"].split(":")[0]) for problem in problems] == (
        [(2, True, said)] if said else []
    )
    assert answer.json().get("changed") == (1 if said else None)


def test_json_that_is_none_loses_one_line_only(post):
    deep = "[" * 5000 + "]" * 5000
    digits = "9" * 5000
    elements = ['{"log": "a", "n": NaN, "i": -Infinity}', "{bad}", '{"log": "b"}', deep, '{"log": "c", "x": "]}\\""}',
                f'{{"log": "d", "n": {digits}}}', "5"]  # fmt: skip
    answer = post(f"[{', '.join(elements)}]".encode())
    assert (answer.status_code, texts()) == (200, ["a", "b", "c", "d"])
    assert [problem["line"] for problem in answer.json()["problems"] if not problem.get("stored")] == [2, 4, 7]
    LogLine.objects.all().delete()
    answer = post("\n".join([*elements, "", "not JSON", '{"log": "e"}']).encode(), "application/x-ndjson")
    assert (answer.status_code, texts()) == (200, ["a", "b", "c", "d", "e"])
    assert [problem["line"] for problem in answer.json()["problems"]] == [2, 4, 7, 9]


def test_a_body_of_many_elements_that_are_not_valid_is_refused_as_a_whole(post, monkeypatch):
    monkeypatch.setattr(bodies, "MAX_BAD", 2)
    good = b'{"log": "x"}'
    assert post(b"[%s,{a},{b}]" % good).json()["taken"] == 1
    assert post(b"[%s,{a},{b},{c}]" % good).json()["msg"] == "body: not valid JSON"
    assert texts() == ["x"]


def test_bytes_that_are_not_utf_8_are_replaced_in_their_line(post):
    lines = [b'{"log": "good"}', b'{"log": "caf\xe9", "k\xe9": "v\xe9"}', b'{"log": "\xe7\xbb\x88"}']
    for body, kind in ((b"\xef\xbb\xbf[%s]" % b",".join(lines), "application/json"),
                       (b"\r\n\r\n".join(lines), "application/x-ndjson")):  # fmt: skip
        answer = post(body, kind).json()
        assert (answer["taken"], answer["changed"], texts()) == (3, 1, ["good", "caf\ufffd", "终"])
        assert LogLine.objects.get(log="caf\ufffd").attributes == {"k\ufffd": "v\ufffd"}
        LogLine.objects.all().delete()


def test_objects_one_after_the_other_are_taken_as_json_stream_of_fluent_bit(post):
    assert post(b'{"log": "one"}{"log": "two"}\n{"log": "three"}').json() == {"taken": 3, "new": 3}
    assert post(b'{"log": "one"}, oops').status_code == 403


@pytest.mark.parametrize("kind", few(["application/json", "application/x-ndjson"], 1))
def test_packed_bodies_are_unpacked(post, kind):
    packers = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": lambda data: bytes(cramjam.zstd.compress(data))}
    for name, pack in packers.items():
        assert post(pack(b'{"log": "%s"}' % name.encode()), kind, **{"content-encoding": name}).json()["taken"] == 1
    assert texts() == list(packers)
    for body, name, words in ((b"{}", "br", "br is unknown"), (b"{}", "gzip", "is not what"),
                              (zlib.compress(b" " * (33 << 20)), "deflate", "32 MiB")):  # fmt: skip
        answer = post(body, kind, **{"content-encoding": name})
        assert (answer.status_code, words in answer.json()["msg"]) == (403, True)
        assert ("gzip" in answer.get("Accept-Encoding", "")) == (name == "br")


def test_lines_that_are_refused_and_sent_again_are_stored_once(post, monkeypatch):
    """Also those without ids of a body that is stored in parts, where the bus is lost after the first part."""
    monkeypatch.setattr(logs_api, "CHUNK", 2)
    lines, checked = [{"log": str(number)} for number in range(5)], []

    def lost() -> None:
        checked.append(1)
        if len(checked) == 2:
            raise Fault("the message bus is away")

    with monkeypatch.context() as away:
        away.setattr(accept.bus, "check", lost)
        assert post(lines).status_code == 503
        assert (len(checked), texts()) == (2, [])
    assert post(lines).json() == {"taken": 5, "new": 5}
    assert texts() == ["0", "1", "2", "3", "4"]


def test_a_long_id_of_an_administrator_is_recognized_again(as_staff):
    for id, new in (("x" * 200, 1), ("x" * 200, 0), ("x" * 199 + "y", 1)):
        assert as_staff.call("post", "aiops/logs", {"log": "x", "_id": id}).json()["new"] == new


def test_two_bodies_with_the_same_workloads_in_another_order_are_both_stored(alice, monkeypatch):
    """Each is in the middle of its lines when the other is."""
    monkeypatch.setattr(logs_api, "CHUNK", 1)
    meeting, checked, check = threading.Barrier(2), threading.local(), accept.bus.check

    def meet() -> None:
        checked.times = getattr(checked, "times", 0) + 1
        if checked.times == 2:
            meeting.wait(60)
        check()

    monkeypatch.setattr(accept.bus, "check", meet)
    lines = [{"log": name, "deployment": name} for name in ("first", "second")]
    headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}

    def send(body: list) -> dict:
        try:
            return Client().post(PATH, body, content_type="application/json", headers=headers).json()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(send, (lines, lines[::-1])))
    assert answers == [{"taken": 2, "new": 2}] * 2
    assert sorted(texts()) == ["first", "first", "second", "second"]
    assert dict(Workload.objects.values_list("deployment", "lines")) == {"first": 2, "second": 2}
    assert sum(LogMinute.objects.values_list("unjudged", flat=True)) == 4
