"""The listener for small requests with log lines: stored together, answered one by one as the web server does."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.core.cache import cache
from django.db import connection, connections
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from accounts import lifecycle as accounts
from accounts import named_tokens
from aiops.intake import accept, grouping, quota
from aiops.models import LogLine
from aiops.web import log_listener
from aiops.web.log_listener import LINES, LOKI, OTLP
from kernel.errors import Fault
from kernel.inner_http import listen
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db(transaction=True)


def asked(user, body, path: str = LINES, **more: str) -> log_listener.Request:
    """Return a request of the user's with that body, in JSON unless it is bytes."""
    meta = {"HTTP_CONTENT_TYPE": "application/json", "HTTP_ACCEPT": "*/*"}
    meta["HTTP_AUTHORIZATION"] = f"Bearer {accounts.token_of(user)}"
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return log_listener.Request(None, path, meta | more, data)


def pushed(*texts: str) -> dict:
    values = [[str(1_700_000_000_000_000_000 + number), text] for number, text in enumerate(texts)]
    return {"streams": [{"stream": {"app": "shop"}, "values": values}]}


def records(*texts: str) -> dict:
    logs = [{"timeUnixNano": "1700000000000000000", "body": {"stringValue": text}} for text in texts]
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}


def read(answer: tuple[int, bytes]) -> tuple[int, object]:
    """Return the status and the body of a whole answer, whose length must be right."""
    head, _, body = answer[1].partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    status = int(head.split()[1])
    return status, json.loads(body) if body[:1] in (b"{", b"[") else head.decode()


@pytest.fixture(autouse=True)
def forwarded():
    """Forward what these tests have stored before another test listens."""
    yield
    grouping.groups().forwarder.flush()


@pytest.fixture
def commits(monkeypatch):
    """Return the numbers of lines that are stored together."""
    real, sizes = accept.append, []

    def append(lines):
        sizes.append(len(lines))
        return real(lines)

    monkeypatch.setattr(accept, "append", append)
    return sizes


def texts() -> set[str]:
    return set(LogLine.objects.values_list("log", flat=True))


def test_what_arrives_together_is_one_commit_and_each_gets_its_own_answer(commits, alice, bob):
    export = ExportLogsServiceRequest()
    export.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1).body.string_value = "four"
    given = log_listener.answers([
        asked(alice, {"log": "one", "_id": "a"}),
        asked(alice, {"log": "one again", "_id": "a"}),
        asked(bob, {"log": "two", "_id": "a"}),
        asked(alice, pushed("three"), LOKI),
        asked(alice, pushed("three"), LOKI),
        asked(bob, export.SerializeToString(), OTLP, HTTP_CONTENT_TYPE="application/x-protobuf"),
        asked(bob, records("five"), OTLP),
        asked(bob, b'{"log": "six"}\n{"log": "seven"}', HTTP_CONTENT_TYPE="application/x-ndjson"),
    ])  # fmt: skip
    with psycopg.connect(**connection.get_connection_params()) as other:
        assert other.execute("SELECT count(*) FROM aiops_log").fetchone() == (7,), "committed before it is answered"
    assert commits == [9]
    assert [read(answer) for answer in given[:3]] == [
        (200, {"taken": 1, "new": 1}), (200, {"taken": 1, "new": 0}), (200, {"taken": 1, "new": 1})]  # fmt: skip
    assert [answer[0] for answer in given] == [200, 200, 200, 204, 204, 200, 200, 200]
    assert read(given[6])[1] == {"partialSuccess": {}}
    owners = {"one": "alice", "two": "bob", "three": "alice", **dict.fromkeys(("four", "five", "six", "seven"), "bob")}
    assert dict(LogLine.objects.values_list("log", "namespace")) == owners


@pytest.mark.parametrize(
    ("body", "more"),
    few([
        (b"{", {}), (b"[]", {}), (b"", {}), ({"log": ""}, {}), ({"log": "x", "namespace_name": "bob"}, {}),
        ([{"log": "good"}, {"log": None}], {}), ({"log": "x"}, {"HTTP_CONTENT_TYPE": "text/plain"}),
        ({"log": "x"}, {"HTTP_COOKIE": "a=b"}), ({"log": "x"}, {"HTTP_ACCEPT": "text/html"}),
        ({"log": "x"}, {"HTTP_AUTHORIZATION": "Bearer mlp_u1_" + "x" * 43}), ({"log": "x"}, {"HTTP_AUTHORIZATION": ""}),
        (b"\x1f\x8b", {"HTTP_CONTENT_ENCODING": "gzip"}), ([{"log": "x"}] * (grouping.MAX + 1), {}),
    ], 8),
    ids=str,
)  # fmt: skip
def test_what_is_not_usual_is_sent_on_to_the_web_server(commits, alice, body, more):
    usual, other = log_listener.answers([asked(alice, {"log": "usual"}), asked(alice, body, **more)])
    assert read(usual) == (200, {"taken": 1, "new": 1})
    assert other[0] == 0
    assert "X-Accel-Redirect: @other_lines\r\n" in read(other)[1]
    assert texts() == {"usual"}


def test_a_push_of_many_lines_or_of_what_cannot_be_read_delays_no_others(alice):
    many, empty, bad, usual = log_listener.answers([
        asked(alice, pushed(*["x"] * (grouping.MAX + 1)), LOKI),
        asked(alice, b"\x0a\x00" * 4000, OTLP, HTTP_CONTENT_TYPE="application/x-protobuf"),
        asked(alice, b"{", LOKI),
        asked(alice, pushed("usual", ""), LOKI),
    ])  # fmt: skip
    assert "X-Accel-Redirect: @other_pushed\r\n" in read(many)[1]
    assert (empty[0], bad[0], usual[0]) == (200, 400, 204)
    assert texts() == {"usual"}


def test_who_may_not_send_is_refused_from_the_revocation_on(alice):
    token = accounts.token_of(alice)
    scoped = named_tokens.create(user=alice, name="reader", scope="read", by="test")[1]
    as_header = {"HTTP_AUTHORIZATION": f"Bearer {token}"}
    assert log_listener.answers([asked(alice, pushed("x"), LOKI, **as_header)])[0][0] == 204
    accounts.rotate_token(user=alice, by="test")
    given = log_listener.answers([
        asked(alice, pushed("y"), LOKI, **as_header),
        asked(alice, {"log": "y"}, **as_header),
        asked(alice, pushed("y"), LOKI, HTTP_AUTHORIZATION=f"Bearer {scoped}"),
        asked(alice, {"log": "y"}, HTTP_AUTHORIZATION=f"Bearer {scoped}"),
    ])  # fmt: skip
    assert [status for status, _text in given] == [401, 0, 401, 0]
    assert b"WWW-Authenticate: Basic" in given[0][1]
    assert texts() == {"x"}


def test_one_that_cannot_be_stored_fails_no_other(alice, monkeypatch):
    real = accept.append

    def append(lines):
        if any(line["log"] == "bad" for line in lines):
            raise ValueError("bad")
        return real(lines)

    monkeypatch.setattr(accept, "append", append)
    requests = [asked(alice, {"log": text}) for text in ("one", "bad", "two")] + [asked(alice, pushed("bad"), LOKI)]
    given = log_listener.answers(requests)
    assert [answer[0] for answer in given] == [200, 503, 200, 503]
    assert b"Retry-After: 2\r\n" in given[1][1]
    assert read(given[3])[1]["code"] == 503
    assert texts() == {"one", "two"}


def test_who_has_too_many_lines_waits_and_nobody_else(alice, bob):
    quota.measured({"alice": quota.Share(2 << 40)})
    try:
        given = log_listener.answers([
            asked(alice, {"log": "x"}), asked(alice, pushed("x"), LOKI), asked(alice, records("x"), OTLP),
            asked(bob, {"log": "y"}),
        ])  # fmt: skip
        assert [answer[0] for answer in given] == [0, 503, 503, 200]
        assert b"Retry-After: 60\r\n" in given[1][1]
        assert texts() == {"y"}
    finally:
        cache.delete(quota.KEPT)


def test_what_arrives_between_two_rounds_of_the_housekeeping_counts(alice, settings, monkeypatch):
    settings.AIOPS_USER_MIB = 1
    monkeypatch.setattr(quota, "ROW", 700 << 10)
    quota.measured({})
    try:
        given = [log_listener.answers([asked(alice, {"log": "x"})])[0][0] for _ in range(4)]
        assert given == [200, 200, 0, 0]
    finally:
        cache.delete(quota.KEPT)


@contextlib.contextmanager
def listening(path):
    """Run the listener at a socket, on threads of its own, and yield a function that posts there."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        listener = log_listener.Listener()
        server = await listen(listener, str(path))
        ready.set()
        await stop.wait()
        server.close()
        await asyncio.to_thread(listener.storing.submit(connections.close_all).result, LIMIT_S)
        listener.storing.shutdown()

    def post(requests: list[log_listener.Request]) -> list[tuple[int, bytes]]:
        link = http.client.HTTPConnection("localhost")
        link.sock = socket.socket(socket.AF_UNIX)
        link.sock.settimeout(LIMIT_S)
        link.sock.connect(str(path))
        answers = []
        for _connection, target, meta, body in requests:
            headers = {name.removeprefix("HTTP_").replace("_", "-"): value for name, value in meta.items()}
            link.request("POST", target, body, headers)
            answer = link.getresponse()
            answers.append((answer.status, answer.read()))
        link.close()
        return answers

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    assert ready.wait(LIMIT_S)
    try:
        yield post
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(LIMIT_S)
        loop.close()


def test_many_connections_are_answered_at_the_same_time(alice, tmp_path, monkeypatch):
    """Also after a fault that has nothing to do with one request."""
    real, faults = grouping.store_each, iter([Fault("the store is away"), RuntimeError("a bug")])

    def store_each(requests):
        problem = next(faults, None)
        if problem is not None:
            raise problem
        return real(requests)

    monkeypatch.setattr(grouping, "store_each", store_each)
    lanes = [[asked(alice, {"log": f"{lane} {number}"}) for number in range(10)] for lane in range(8)]
    with listening(tmp_path / "logs.sock") as post:
        assert [post(lanes[0][:1])[0][0] for _ in range(3)] == [503, 503, 200]
        with ThreadPoolExecutor(len(lanes)) as threads:
            answers = [answer for lane in threads.map(post, lanes) for answer in lane]
    assert {status for status, _body in answers} == {200}
    assert texts() == {f"{lane} {number}" for lane in range(8) for number in range(10)}
