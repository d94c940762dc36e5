"""The endpoints for log lines in front of Django: the same answers, small requests together, nothing acknowledged
before its commit.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.core.cache import cache
from django.db import connection, connections
from django.test import RequestFactory

from accounts import lifecycle as accounts
from aiops.intake import accept, grouping, quota
from aiops.models import LogLine
from aiops.wire import payloads, subjects
from kernel import bus
from kernel.errors import Fault
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from mlp.wsgi import application

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/api/v1/aiops/logs"
LOKI = {"streams": [{"stream": {"app": "web"}, "values": [["1700000000000000000", "paid"]]}]}


@pytest.fixture
def post(alice):
    """Return a function that posts in front of Django and returns (status, headers, body)."""
    own = accounts.token_of(alice)

    def send(data: bytes, path: str = PATH, kind: str = "application/json", token: str = own, seen=None):
        headers = {"authorization": f"Bearer {token}"}
        environ = RequestFactory().post(path, data, content_type=kind, headers=headers).environ
        environ.pop("HTTP_COOKIE", None)
        started = []

        def start(status: str, given: list, *_rest) -> None:
            started.extend([int(status[:3]), dict(given)])
            if seen is not None:
                seen()

        body = b"".join(application(environ, start))
        return (*started, body)

    return send


@pytest.fixture
def together(post):
    """Return a function that posts bodies from threads of their own while the first group is held up."""

    def send(bodies: list[bytes], held: threading.Event) -> list:
        def post_lines(body: bytes):
            try:
                return post(body)
            except SystemExit:
                return None
            finally:
                connections.close_all()

        def wait(waiting: int) -> None:
            pause = threading.Event()
            for _ in range(LIMIT_S * 100):
                if grouping.groups().busy and len(grouping.groups().waiting) == waiting:
                    return
                pause.wait(0.01)
            pytest.fail(f"{len(grouping.groups().waiting)} requests wait, not {waiting}")

        with ThreadPoolExecutor(len(bodies)) as threads:
            try:
                posted = [threads.submit(post_lines, bodies[0])]
                wait(0)
                for number, body in enumerate(bodies[1:], start=1):
                    posted.append(threads.submit(post_lines, body))
                    wait(number)
            finally:
                held.set()
            return [each.result(LIMIT_S) for each in posted]

    return send


def held_up(monkeypatch, then=None) -> tuple[threading.Event, list[int]]:
    """Hold up the first group until the event; return it, and the sizes of the groups. `then` may refuse lines."""
    real, held, sizes = accept.append, threading.Event(), []

    def append(lines):
        sizes.append(len(lines))
        if len(sizes) == 1:
            assert held.wait(LIMIT_S)
        if then is not None:
            then(lines)
        return real(lines)

    monkeypatch.setattr(accept, "append", append)
    return held, sizes


def texts() -> set[str]:
    return set(LogLine.objects.values_list("log", flat=True))


def line(text: str, **more) -> bytes:
    return json.dumps({"log": text, **more}).encode()


def test_one_and_many_lines_are_stored_and_forwarded(post, peer):
    peer.listen(subjects.STORED_LOGS)
    status, headers, body = post(line("one", deployment="web", time=1700000000, level="warn"))
    assert (status, json.loads(body), headers["Content-Type"]) == (200, {"taken": 1, "new": 1}, "application/json")
    row = LogLine.objects.get()
    assert (row.namespace, row.deployment, row.time) == ("alice", "web", 1700000000000)
    assert row.attributes == {"level": "warn"}
    assert [item.log for item in payloads.decode(peer.wait(subjects.STORED_LOGS)[0])] == ["one"]
    body = line("two", _id="mine") + b"\n" + line("three")
    assert json.loads(post(body, kind="application/x-ndjson")[2]) == {"taken": 2, "new": 2}
    assert json.loads(post(b"[" + line("two", _id="mine") + b"]")[2]) == {"taken": 1, "new": 0}
    assert texts() == {"one", "two", "three"}
    assert LogLine.objects.get(log="two").line_id == "alice:mine"


@pytest.mark.parametrize(
    "body",
    few([
        b"{", b"5", b"[]", b"", b'{"log": ""}', b'{"log": 1}', b'{"log": "x", "time": "soon"}', b'{"log": "a\\u0000"}',
        b'{"log": "x", "time": true}', b'{"log": "x", "namespace_name": "bob"}', b'{"log": "x", "attributes": [1]}',
        b'{"log": "x", "cluster_id": "c1"}', b'{"log": "x", "_id": ""}', b'[{"log": "good"}, {"log": null}]',
    ], 5),
    ids=lambda body: body[:40].decode("latin-1"),
)  # fmt: skip
def test_what_is_not_plainly_valid_is_answered_as_ever(post, client, alice, body):
    headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}
    expected = client.post(PATH, body, content_type="application/json", headers=headers)
    status, _headers, given = post(body)
    assert (status, json.loads(given)) == (expected.status_code, expected.json())


def test_who_may_not_send_is_refused_as_ever(post, alice):
    assert post(line("x"), token="mlp_u1_" + "x" * 43)[0] == 403
    token = accounts.token_of(alice)
    assert post(line("x"))[0] == 200
    accounts.rotate_token(user=alice, by="test")
    assert post(line("x"), token=token)[0] == 403
    assert post(json.dumps(LOKI).encode(), "/loki/api/v1/push", token=token)[0] == 401
    assert LogLine.objects.count() == 1


def test_who_has_too_many_lines_is_asked_to_wait(post):
    quota.measured({"alice": quota.Share(2 << 40)})
    try:
        status, headers, body = post(line("x"))
        assert (status, headers["Retry-After"]) == (503, "60")
        assert "MLP_AIOPS_USER_MIB" in json.loads(body)["msg"]
        assert not LogLine.objects.exists()
    finally:
        cache.delete(quota.KEPT)


def test_what_a_shipper_pushes_again_is_stored_once(post):
    assert post(json.dumps(LOKI).encode(), "/loki/api/v1/push")[0] == 204
    assert post(json.dumps(LOKI).encode(), "/loki/api/v1/push")[0] == 204
    assert LogLine.objects.get().log == "paid"


def test_a_line_is_committed_before_it_is_acknowledged(post):
    seen = []

    def look() -> None:
        with psycopg.connect(**connection.get_connection_params()) as other:
            seen.append(other.execute("SELECT count(*) FROM aiops_log").fetchone()[0])

    post(line("one"), seen=look)
    assert seen == [1]


def test_requests_that_wait_are_stored_together_and_each_gets_its_own_count(together, monkeypatch):
    held, sizes = held_up(monkeypatch)
    answers = together([line(f"line {number}", _id=str(number % 8)) for number in range(9)], held)
    assert [status for status, *_ in answers] == [200] * 9
    assert sorted(json.loads(body)["new"] for *_, body in answers) == [0, *[1] * 8]
    assert sizes == [1, 8]
    assert LogLine.objects.count() == 8


def test_a_request_that_cannot_be_stored_does_not_fail_the_others(together, monkeypatch):
    def refuse(lines):
        if any(line["log"] == "bad" for line in lines):
            raise ValueError("bad")

    held, _sizes = held_up(monkeypatch, refuse)
    answers = together([line("first"), line("bad"), *(line(f"line {number}") for number in range(4))], held)
    assert [status for status, *_ in answers] == [200, 503, 200, 200, 200, 200]
    assert texts() == {"first", *(f"line {number}" for number in range(4))}


def test_nothing_is_acknowledged_when_the_store_is_away_or_a_thread_ends(together, monkeypatch):
    def end(lines):
        raise SystemExit(1) if len(lines) > 1 else Fault("the store is unavailable")

    held, _sizes = held_up(monkeypatch, end)
    answers = together([line(f"line {number}") for number in range(4)], held)
    assert [answer and answer[0] for answer in answers] == [503, None, 503, 503]
    assert not LogLine.objects.exists()


def test_without_the_bus_nothing_is_stored_and_the_sender_tries_again(post, monkeypatch):
    def away(*_args):
        raise Fault("the message bus is not available")

    monkeypatch.setattr(bus, "is_connected", lambda: False)
    monkeypatch.setattr(bus, "check", away)
    status, headers, body = post(line("one"))
    assert (status, headers["Retry-After"], json.loads(body)) == (503, "2", {"msg": "the message bus is not available"})
    assert not LogLine.objects.exists()
