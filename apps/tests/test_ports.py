"""The port of an application: chosen to avoid conflicts, and replaced when another process has taken it."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import closing
from pathlib import Path

import pytest

import runners
from apps import lifecycle, ports
from apps.models import PORTS, Application

from .test_apps import infer, process_of

pytestmark = pytest.mark.django_db(transaction=True)


def taken(port: int) -> socket.socket:
    """Occupy the port with an outgoing connection that happens to use it."""
    with socket.create_server(("127.0.0.1", 0)) as far:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a server has left behind does not matter here
        link.bind(("127.0.0.1", port))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # from now on it is ours alone
        link.connect(far.getsockname())
        return link


def test_ports_of_outgoing_connections_are_used_last(monkeypatch):
    monkeypatch.setattr(ports, "PORTS", PORTS)
    monkeypatch.setattr(ports, "OUTGOING", range(31010, 60000))
    assert ports.choose(range(31000, 31009)) == 31009
    assert ports.choose(range(31000, 31010)) in range(31010, PORTS.stop)
    assert ports.choose(PORTS) is None
    assert ports.outgoing(Path("/none")) == range(0)


def test_a_port_that_is_in_use_is_replaced_before_the_start(deploy, ready):
    app = deploy()
    before = app.port
    with closing(taken(before)):
        ready(app)
        assert (app.port != before, app.port in PORTS, app.failures) == (True, True, 0)
        assert app.address.endswith(f":{app.port}")
        assert infer(app, [1]) == [2]
    assert runners.get().names() == [app.run_name]


def test_an_application_that_lost_its_port_restarts_on_another(deploy, ready, until):
    app = ready(deploy())
    before = app.port
    os.kill(process_of(app), signal.SIGKILL)

    def lost() -> bool:
        app.refresh_from_db()
        return app.state == "creating"

    until(lost)
    with closing(taken(before)):
        ready(app)
        assert app.port != before
        assert infer(app, [1]) == [2]


def test_a_late_change_of_port_has_no_effect(deploy, ready):
    app = ready(deploy())
    assert lifecycle.move(app.pk, app.run_name, [app.port]) is None
    assert lifecycle.move(app.pk, "app-1-0", [app.port]) is None
    assert Application.objects.get().port == app.port
