"""The port of an application: a number that no other has, and on one machine nothing more than that."""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest
import requests

import runners
from apps import ports
from apps.models import PORTS
from kernel import sockets
from runners import RunSpec
from runners.tests.helpers import end_of

from .conftest import NAMES, bearer_of
from .test_apps import infer, process_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_any_free_port_of_the_range_is_chosen(monkeypatch):
    monkeypatch.setattr(ports, "PORTS", PORTS)
    assert ports.choose(range(PORTS.start, PORTS.stop - 1)) == PORTS.stop - 1
    assert ports.choose(range(PORTS.start, PORTS.stop - 10)) in range(PORTS.stop - 10, PORTS.stop)
    assert ports.choose(PORTS) is None


def test_another_program_that_listens_on_its_port_is_sent_nothing(front, deploy, ready, until, alice):
    """Not at its start, not while it serves, and not while its process is dead."""
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


SCAN = """
import http.client, json, pathlib, socket, sys

ports = {int(sys.argv[1])}
for table in ('tcp', 'tcp6'):
    for line in pathlib.Path('/proc/net', table).read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == '0A':
            ports.add(int(words[1].split(':')[1], 16))
names = {line.split()[7] for line in open('/proc/net/unix').readlines()[1:] if len(line.split()) > 7}
names.add(sys.argv[2])
found = []
for place in [*ports, *names]:
    link = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
    link.settimeout(2)
    try:
        link.connect(place.replace('@', chr(0)) if isinstance(place, str) else ('127.0.0.1', place))
        link.sendall(b'GET /v2/models/adder HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
        answer = link.recv(1000)
        if b' 200 ' in answer[:20] or b'adder' in answer:
            found.append([place, answer.decode(errors='replace')])
    except OSError:
        pass
print(json.dumps({'asked': len(ports) + len(names), 'found': found}))
"""


def test_another_users_job_finds_no_application_that_answers(deploy, ready, bob, tmp_path):
    app = ready(deploy())
    runner = runners.get()
    spec = RunSpec(
        name=f"scan-{app.pk}",
        command=[runner.python, "-I", "-S", "-c", SCAN, str(app.port), sockets.parse(app.address)],
        cwd=tmp_path / "work",
        environment=runner.environment("/tmp"),
        log=tmp_path / "work" / "log" / "scan.log",
        owner=bob.pk,
    )
    spec.cwd.mkdir()
    runner.start(spec)
    assert end_of(runner, spec.name).succeeded, runners.tail(spec.log)
    told = json.loads(spec.log.read_text())
    runner.forget(spec.name)
    assert told["asked"] >= 2
    assert told["found"] == []
