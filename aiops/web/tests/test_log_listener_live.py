"""Small requests with log lines through real nginx: what is acknowledged survives a SIGKILL of who took it."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from accounts import lifecycle as accounts
from aiops.models import LogLine
from datasets.tests.live import Service
from mlp.tests.patience import LIMIT_S

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]
LINES, LOKI = "/api/v1/aiops/logs", "/loki/api/v1/push"
SENDERS, KILLS = 6, 3


@pytest.fixture
def front(tmp_path, transactional_db):
    service = Service(tmp_path)
    service.start_web()
    service.start_nginx()
    yield service
    service.stop(service.nginx)
    service.stop_web()
    service.end()


def sender(service: Service, token: str):
    """Return a function that posts and returns (status, headers, body); it connects again after a fault."""
    links = [HTTPConnection("127.0.0.1", service.port, timeout=LIMIT_S)]

    def post(path: str, body: bytes | dict, kind: str = "application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        links[0].request("POST", path, data, {"Authorization": f"Bearer {token}", "Content-Type": kind})
        answer = links[0].getresponse()
        return answer.status, answer.headers, answer.read()

    return post


def test_the_usual_and_the_unusual_are_answered_as_by_the_web_server(front, alice):
    post = sender(front, accounts.token_of(alice))
    assert json.loads(post(LINES, {"log": "one"})[2]) == {"taken": 1, "new": 1}
    assert post(LOKI, {"streams": [{"stream": {"app": "a"}, "values": [["1", "two"]]}]})[0] == 204
    status, _headers, body = post(LINES, {"log": "three", "time": "soon"})
    assert (status, "problems" in json.loads(body)) == (200, True), "read by the web server"
    status, _headers, body = post(LINES, b"{")
    assert (status, json.loads(body)) == (403, {"msg": "body: not valid JSON"})
    assert json.loads(post(LINES, [{"log": f"many {number}"} for number in range(300)])[2])["taken"] == 300
    odd = HTTPConnection("127.0.0.1", front.port, timeout=LIMIT_S)
    odd.putrequest("POST", LOKI)
    for name, value in {"X-Name": b"a\x01b", "Content-Length": "2"}.items():
        odd.putheader(name, value)
    odd.endheaders(b"{}")
    assert odd.getresponse().status == 401, "what nginx passes on is no fault of the listener"
    odd.close()
    for path, size, status in ((LOKI, 2, 401), (LOKI, 20000, 400), ("/v1/logs", 20000, 400), (LINES, 20000, 403)):
        odd.putrequest("POST", path)  # one that is larger is left to gunicorn, which refuses such a header
        for name, value in {"X-Name": b"a\x01b", "Content-Length": str(size)}.items():
            odd.putheader(name, value)
        odd.endheaders(b"{}".ljust(size))
        answer = odd.getresponse()
        said = json.loads(answer.read())
        assert answer.status == status, said
        assert "not valid" in said["msg" if path == LINES else "message"] or size == 2
        odd.close()
    stranger = sender(front, "mlp_u1_" + "x" * 43)
    assert stranger(LINES, {"log": "x"})[0] == 403
    assert stranger(LOKI, {"streams": []})[0] == 401
    assert LogLine.objects.count() == 303


def test_what_was_acknowledged_survives_a_kill_and_a_repetition_is_no_second_line(front, alice):
    acknowledged, ended, counted = set(), threading.Event(), threading.Semaphore(0)

    def send(lane: int) -> None:
        post = sender(front, accounts.token_of(alice))
        number = 0
        while not ended.is_set():
            body = {"log": f"line {lane} {number}", "_id": f"{lane}-{number}", "deployment": "shop"}
            status, _headers, _body = post(LINES, body)
            assert status in {200, 503}
            if status == 200:
                acknowledged.add(body["log"])
                counted.release()
                number += 1  # else it is sent again

    with ThreadPoolExecutor(SENDERS) as threads:
        lanes = [threads.submit(send, lane) for lane in range(SENDERS)]
        try:
            for _ in range(KILLS):
                for _line in range(50):
                    assert counted.acquire(timeout=LIMIT_S)
                front.stop(front.data)
                front.start_data()
            for _line in range(50):
                assert counted.acquire(timeout=LIMIT_S)
        finally:
            ended.set()
        for lane in lanes:
            lane.result(LIMIT_S)
    stored = list(LogLine.objects.values_list("log", flat=True))
    assert len(stored) == len(set(stored))
    assert acknowledged <= set(stored)
