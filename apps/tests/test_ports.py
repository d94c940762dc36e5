"""The port of an application: a number that no other has, and on one machine nothing more than that."""

from __future__ import annotations

import os
import signal
import socket

import pytest
import requests

from apps import ports
from apps.models import PORTS

from .conftest import NAMES, bearer_of
from .test_apps import infer, process_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_any_free_port_of_the_range_is_chosen(monkeypatch):
    monkeypatch.setattr(ports, "PORTS", PORTS)
    assert ports.choose(range(PORTS.start, PORTS.stop - 1)) == PORTS.stop - 1
    assert ports.choose(range(PORTS.start, PORTS.stop - 10)) in range(PORTS.stop - 10, PORTS.stop)
    assert ports.choose(PORTS) is None


def test_whoever_listens_on_its_port_is_sent_nothing(front, deploy, ready, until, alice):
    """Not at its start, not while it serves, and not while its killed process is away."""
    app = deploy(next(NAMES))
    call = {"url": f"{front}/alice/{app.name}/predict", "json": {"x": [1]}, "headers": bearer_of(alice)}
    with socket.create_server(("127.0.0.1", app.port)) as intruder:
        ready(app)
        assert requests.post(**call).json() == {"y": [2]}
        os.kill(process_of(app), signal.SIGKILL)
        assert requests.post(**call).status_code == 503

        def is_back() -> bool:
            app.refresh_from_db()
            return app.attempt == 2 and app.state == "ready"

        until(is_back)
        assert infer(app, [1]) == [2]
        intruder.setblocking(False)
        with pytest.raises(BlockingIOError):
            intruder.accept()
