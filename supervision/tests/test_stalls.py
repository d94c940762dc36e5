"""A machine that stalls: supervisord's late answer is accepted, calls are not repeated, a part that hangs is ended."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
import time
from types import SimpleNamespace
from xmlrpc.client import Fault, dumps

import pytest
from django.conf import settings

from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from supervision import control, health, programs
from supervision.part import Part
from supervision.watchdog import Watchdog

STALL_S = 1.0
SILENT_S = 0.3
SLEEP = os.path.realpath(shutil.which("sleep"))


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A fake nginx that prints what the file `says` holds, and does not end while that is missing."""
    path = tmp_path / "nginx"
    path.write_text(f"#!/bin/sh\n[ -e {tmp_path}/says ] || exec sleep 60\ncat {tmp_path}/says >&2\n")
    path.chmod(0o700)
    monkeypatch.setattr(settings, "NGINX_PROGRAM", str(path))
    return tmp_path / "says"


def test_a_program_that_was_slow_once_is_queried_again(program, monkeypatch):
    monkeypatch.setattr(programs, "LIMIT_S", 0.2)
    assert programs.nginx_version() == ""
    monkeypatch.setattr(programs, "LIMIT_S", 30)
    program.write_text("no number\n")
    assert programs.nginx_version() == ""
    program.write_text("nginx version: nginx/1.26.3\n")
    assert programs.nginx_version() == "1.26.3"
    program.unlink()
    assert programs.nginx_version() == "1.26.3", "what it has said once stands"


class Stalled(socketserver.StreamRequestHandler):
    """Answers an XML-RPC call correctly, but late."""

    def handle(self):
        length = 0
        while (line := self.rfile.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        self.server.calls.append(self.rfile.read(length))
        self.server.ended.wait(STALL_S)
        body = dumps(self.server.answer, methodresponse=True).encode()
        with contextlib.suppress(BrokenPipeError):  # who did not wait is gone
            head = b"HTTP/1.0 200 OK\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n" % len(body)
            self.wfile.write(head + body)


@pytest.fixture
def stalled(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "socket_path", lambda: tmp_path / "s")
    monkeypatch.setattr(control, "ANSWER_LIMIT_S", STALL_S / 4)
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "s"), Stalled) as server:
        server.calls, server.ended, server.answer = [], threading.Event(), (True,)
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()


def test_a_late_start_of_a_part_succeeds_but_a_late_answer_fails(stalled):
    supervisord = control.Supervisord([])
    supervisord.start_part(Part("web", ["true"], "front"))
    assert [b"startProcess" in call for call in stalled.calls] == [True]
    assert not supervisord.answers()


@pytest.mark.parametrize(
    ("code", "started", "stopped"),
    [
        (6, control.SupervisorEnding, control.SupervisorEnding),  # a signal has requested its end
        (50, control.SupervisorGone, control.SupervisorGone),  # it could not fork
        (60, None, control.SupervisorGone),  # started already
        (70, control.SupervisorGone, None),  # not running
    ],
)
def test_a_refusal_is_harmless_or_means_an_unusable_supervisord(stalled, code, started, stopped):
    stalled.answer = Fault(code, "so it is")
    stalled.ended.set()
    supervisord = control.Supervisord([])
    part = Part("web", ["true"], "front")
    for order, problem in ((supervisord.start_part, started), (supervisord.stop_part, stopped)):
        with pytest.raises(problem) if problem else contextlib.nullcontext():
            order(part)
    if started is control.SupervisorEnding:
        assert supervisord.answers()


@pytest.fixture
def silent_part(tmp_path):
    """A part whose process runs; its address takes connections and answers nothing."""
    process = subprocess.Popen(["sleep", "600"], cwd=tmp_path, start_new_session=True)
    spec = {"cwd": os.path.realpath(tmp_path), "program": "", "stop_signal": "TERM"}
    (tmp_path / "launch.json").write_text(json.dumps(spec))
    (tmp_path / "group").write_text(str(process.pid))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ready = functools.partial(health.get, listener.getsockname(), "/healthz/live", 0.2)
        yield SimpleNamespace(
            name="data", stage="front", folder=tmp_path, lively=True, ready=ready, listener=listener, process=process
        )
    process.kill()
    process.wait()


@pytest.fixture
def watchdog(silent_part, monkeypatch):
    monkeypatch.setattr("supervision.watchdog.ASK_EVERY_S", 0)
    monkeypatch.setattr("supervision.watchdog.SILENT_S", SILENT_S)
    return Watchdog([silent_part])


def test_a_part_that_stays_silent_is_ended_so_that_it_is_started_again(silent_part, watchdog):
    said = []
    watchdog.poll(said.append)
    assert silent_part.process.poll() is None, "it was asked once only"
    until(lambda: watchdog.poll(said.append) or said)
    assert silent_part.process.wait(LIMIT_S) == -signal.SIGKILL
    assert said[0].startswith("data did not answer")


def test_a_part_that_refuses_is_being_started_and_is_not_ended(silent_part, watchdog):
    silent_part.listener.close()
    watchdog.poll(pytest.fail)
    end = time.monotonic() + 2 * SILENT_S
    while time.monotonic() < end:
        watchdog.poll(pytest.fail)
    watchdog.poll(pytest.fail)  # one that begins so late, however long the others took
    assert silent_part.process.poll() is None


def test_a_stopped_process_is_ended_also_one_that_began_after_the_last_look_around(silent_part, watchdog, monkeypatch):
    monkeypatch.setattr("supervision.watchdog.STOPPED_S", 0.1)
    monkeypatch.setattr("supervision.watchdog.LOOK_AROUND_EVERY_S", 0.1)
    monkeypatch.setattr("supervision.watchdog.SILENT_S", 10 * LIMIT_S)
    watchdog.poll(pytest.fail)
    spec = json.loads((silent_part.folder / "launch.json").read_text())
    (silent_part.folder / "launch.json").write_text(json.dumps({**spec, "program": os.path.basename(SLEEP)}))
    with subprocess.Popen([SLEEP, "600"], cwd=silent_part.folder) as later:
        try:
            later.send_signal(signal.SIGSTOP)
            said: list[str] = []
            until(lambda: watchdog.poll(said.append) or said)
            assert said == [f"data: process {later.pid} was stopped for 0.1 s and has been ended"]
            assert later.wait(LIMIT_S) == -signal.SIGKILL
            assert silent_part.process.poll() is None
        finally:
            later.kill()
