"""Requests that no run has got: they count in no limit, and one whose run is not reached goes to another."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time

import pytest
import requests

from apps import balancing, keys, proof, request_limits, routing
from apps.models import Application, Replica
from datasets.webdav.gate import internal_key
from kernel.broker import broker
from mlp.tests.patience import LIMIT_S

from .conftest import NAMES, bearer_of
from .test_balancing import app, linked
from .test_gateway import AtSocket, Echo

__all__ = ["app"]  # a fixture: an application whose runs have one request at once

pytestmark = pytest.mark.django_db(transaction=True)


class Sink:
    """A connection of nginx that keeps what it is answered."""

    def __init__(self) -> None:
        self.text, self.begun, self.transport = b"", time.perf_counter(), self

    def is_closing(self) -> bool:
        return False

    def write(self, text: bytes) -> None:
        self.text += text


def asked(balancer: balancing.Balancer, key: str, **more: str) -> str:
    """Return what nginx is answered for a request with the key."""
    meta = {"HTTP_X_APP_USER": "alice", "HTTP_X_APP_NAME": "calc", "HTTP_X_INTERNAL_KEY": internal_key()}
    meta |= {"HTTP_X_API_KEY": key, **more}
    [answer] = routing.answers(routing.ROUTE, meta)
    if isinstance(answer, tuple):
        return answer[1].decode()
    sink = Sink()
    balancer.send(answer.place, routing.Held(sink, meta, answer))
    return sink.text.decode()


def test_what_a_full_queue_refuses_counts_in_no_limit_of_the_key(app, settings):
    settings.APP_QUEUE = 0
    row, key = keys.create(app=app, name="shop", by="alice", rate=3)
    subject = request_limits.KEY.format(subject=f"key:{row.pk}")
    broker().client.delete(subject)

    async def work() -> None:
        async with linked() as (_replica, link):
            link.task.cancel()
            Application.objects.update(address=":".join(map(str, link.target.address)))
            balancer = balancing.Balancer()
            assert asked(balancer, key).startswith("HTTP/1.1 204 ")
            for held in ("", "", "1", ""):  # the second try of a request is refused as the first one
                assert "X-App-Wait: 1\r\n" in asked(balancer, key, HTTP_X_APP_HELD=held)
            assert sum(map(int, broker().client.hvals(subject))) in (0, 1)

    asyncio.run(work())
    keys.collect()
    assert keys.keys_of(app).get().requests <= 1


class Silent(Echo):
    """Says nothing of its load, as a process of an earlier release."""

    def do_GET(self):
        return self.send_error(404) if self.path.startswith(proof.LOAD) else super().do_GET()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()


@contextlib.contextmanager
def unreachable():
    """Listen at a port where connections are neither accepted nor refused, as at a node that is away."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _number in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_request_whose_node_is_away_goes_to_another_replica(front, adder, alice, tmp_path):
    server = AtSocket(str(tmp_path / "echo"), Silent)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    row = Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name=next(NAMES), port=31000, state="ready", reserved=False,
        run_name="none", address=f"unix:{tmp_path / 'echo'}", replicas_max=2,
    )  # fmt: skip
    try:
        with unreachable() as port:
            Replica.objects.create(
                app=row, slot=1, generation=0, phase="ready", run_name="away", address=f"127.0.0.1:{port}"
            )
            answers = [
                requests.post(f"{front}/alice/{row.name}/v2", data=b"{}", headers=bearer_of(alice), timeout=LIMIT_S)
                for _number in range(2)  # the second one is sent there at once
            ]
    finally:
        server.shutdown()
        server.server_close()
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
