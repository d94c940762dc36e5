"""The upstreams by which the application gateway keeps connections to runs; the application is a small server here."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace

import pytest
import requests

from apps import upstreams
from apps.models import Application
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S

from .conftest import NAMES, bearer_of
from .test_gateway import AtSocket


class Keeping(BaseHTTPRequestHandler):
    """Keeps its connections, and answers with the number of the one that a request came on."""

    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.accepted += 1
        self.number = self.server.accepted

    def finish(self):
        super().finish()
        self.server.ended.set()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(self.command)
        if "crash" in self.path:  # closed without an answer
            self.close_connection = True
            return
        if "together" in self.path:
            self.server.together.wait(LIMIT_S)
        text = str(self.number).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.close_connection = "goodbye" in self.path  # without a word

    do_PUT = do_POST

    def log_message(self, *args):
        pass


@pytest.fixture
def kept(adder, tmp_path, front, alice):
    """A ready application of alice's, with `post`, which returns the number of the connection that a body came on."""
    server = AtSocket(str(tmp_path / "kept"), Keeping)
    server.accepted, server.ended, server.daemon_threads = 0, threading.Event(), True
    server.got, server.together = [], threading.Barrier(4)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    app = Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name=next(NAMES), port=31000, state="ready", reserved=False,
        run_name="none", address=f"unix:{tmp_path / 'kept'}",
    )  # fmt: skip
    with requests.Session() as caller:  # one connection to nginx, so that one process of it answers

        def post(body: object = b"short", path: str = "v2") -> int:
            answer = caller.post(f"{front}/alice/{app.name}/{path}", data=body, headers=bearer_of(alice))
            assert answer.status_code == 200, answer.text
            return int(answer.text)

        address, headers = f"{front}/alice/{app.name}", bearer_of(alice)
        yield SimpleNamespace(post=post, ended=server.ended, got=server.got, address=address, headers=headers)
    server.shutdown()
    server.server_close()


@pytest.mark.django_db(transaction=True)
def test_short_requests_share_a_connection_and_long_ones_have_their_own(kept):
    until(lambda: kept.post() == kept.post())  # an idle connection is kept for some seconds, so one pair is enough
    for body in (b"x" * 100_000, iter([b"a", b"b"])):  # such a body may come very slowly
        assert kept.post() < kept.post(body) < kept.post(b"x" * 100_000)
    until(lambda: kept.post() == kept.post())


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_the_run_has_closed_is_not_used(kept):
    for number in (1, 2, 3):
        kept.ended.clear()
        assert kept.post(path="goodbye") == number
        assert kept.ended.wait(LIMIT_S)


@pytest.mark.django_db(transaction=True)
def test_a_request_that_the_run_has_received_is_not_sent_again(kept):
    """By none of the connections that are kept: it may have done something, or be what ends the run."""

    def put(path: str) -> int:
        return requests.put(f"{kept.address}/{path}", data=b"short", headers=kept.headers).status_code

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(put, ["together"] * 4)) == [200] * 4
    kept.got.clear()
    assert put("crash") == 503
    assert kept.got == ["PUT"]


@pytest.fixture
def now(monkeypatch):
    """The monotonic clock, as a list whose last item is the time."""
    times = [0.0]
    monkeypatch.setattr(upstreams.time, "monotonic", lambda: times[-1])
    monkeypatch.setattr(upstreams, "COUNT", 2)
    return times


def leads_to(folder, via: str) -> str:
    return os.readlink(folder / via.removeprefix("http://"))


def test_each_run_has_one_while_there_are_any(tmp_path, now):
    ours = upstreams.Upstreams(tmp_path)
    first, second = ours.of("/run/a"), ours.of("/run/b")
    assert [leads_to(tmp_path, via) for via in (first, second)] == ["/run/a", "/run/b"]
    assert [ours.of("/run/a"), ours.of("/run/b")] == [first, second]
    assert ours.of(("10.0.0.7", 8080)) == ours.of("/run/c") == "", "a port has none; the third run has none"


def test_another_run_gets_one_only_after_a_long_rest(tmp_path, now):
    ours = upstreams.Upstreams(tmp_path)
    first, second = ours.of("/run/a"), ours.of("/run/b")
    now.append(upstreams.REST_S - 1)
    assert ours.of("/run/a") == first
    assert ours.of("/run/c") == "", "nginx may still be told to send something to b"
    now.append(upstreams.REST_S + 1)
    assert ours.of("/run/c") == second
    assert [leads_to(tmp_path, via) for via in (first, second)] == ["/run/a", "/run/c"]
    assert ours.of("/run/b") == "", "a has just been used"


def test_a_new_process_knows_them_and_lets_them_rest(tmp_path, now):
    first = upstreams.Upstreams(tmp_path).of("/run/a")
    now.append(10 * upstreams.REST_S)
    ours = upstreams.Upstreams(tmp_path)
    second = ours.of("/run/b")
    assert ours.of("/run/c") == "", "the process before may have named a's a moment ago"
    assert ours.of("/run/a") == first != second


def test_without_the_folder_runs_have_none(tmp_path, now):
    assert upstreams.Upstreams(tmp_path / "none").of("/run/a") == ""
