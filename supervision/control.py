"""supervisord: its configuration, its start, and the few calls that run.py makes.

It listens on a unix socket that only this user can open. What it starts begins with launch.become; back-off is done
there, so a part that keeps failing is started again for ever, but never more often than every few seconds.
"""

from __future__ import annotations

import http.client
import os
import resource
import shlex
import sys
import time
import xmlrpc.client
from contextlib import suppress
from pathlib import Path
from xml.parsers.expat import ExpatError

from django.conf import settings

from kernel import sockets

from . import launch
from .forking import Child
from .part import Part, run_dir, write_private

LONGEST_SOCKET = 95  # the system allows 107 bytes, and supervisord adds its process id while it binds
START_LIMIT_S = 60
ANSWER_LIMIT_S = 5  # for a query: it can be repeated, and a shutdown must not wait for a supervisord that hangs
BEGIN_LIMIT_S = 30  # for the order to start a part: it starts a process, which takes long on a busy machine
SHUTDOWN_STATE, ALREADY_STARTED, NOT_RUNNING = 6, 60, 70
PRIORITY = {"servers": 1, "front": 2, "background": 3}  # after a signal supervisord stops the highest first
# No answer, or not all of one: it was killed in the middle, or had no room on the disk.
UNREADABLE = (
    OSError, http.client.HTTPException, xmlrpc.client.ProtocolError, xmlrpc.client.ResponseError, ExpatError,
)  # fmt: skip
MAKES_OWN = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKE_TERMOUT", "MAKE_TERMERR")


class SupervisorGone(Exception):
    """supervisord does not answer or cannot carry out an order: killed, never started, at the machine's limits."""


class SupervisorEnding(SupervisorGone):
    """supervisord is shutting down after a signal: it stops its parts and starts none."""


class _Transport(xmlrpc.client.Transport):
    """Connections to the socket with a time limit: supervisor's own transport (supervisor.xmlrpc) sets none."""

    def __init__(self, limit_s: float):
        super().__init__()
        self.limit_s = limit_s

    def make_connection(self, host) -> sockets.HttpConnection:
        return sockets.HttpConnection(str(socket_path()), self.limit_s)


def pid_file() -> Path:
    return run_dir() / "supervisord.pid"


def socket_path() -> Path:
    """Return the socket's path: in the run folder, or in a folder of ours below /tmp where that path is too long."""
    path = run_dir() / "supervisor.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path
    return sockets.short_folder(settings.MLP_ROOT) / "supervisor.sock"


def clear_sockets() -> None:
    """Remove the sockets of the platform's servers, and what killed ones left beside them. None of them runs."""
    path = socket_path()
    for name in (path, *path.parent.glob(path.name + ".*")):
        name.unlink(missing_ok=True)
    for name in settings.SOCKETS.glob("*"):
        if not name.name.startswith(sockets.OF_RUN):
            name.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: runs that outlive the servers have theirs there
        settings.SOCKETS.rmdir()


class Supervisord:
    """The supervisord of this root. It outlives a killed `up`, and the next `up` stops it."""

    def __init__(self, parts: list[Part]):
        self.parts = parts
        self.process: Child | None = None
        command = [sys.executable, "-m", "supervision.daemon", "-n", "-c", str(run_dir() / "supervisord.conf")]
        self.part = Part("supervisor", command, "itself", stop_wait_s=5, loaded=True)

    # --- its life --------------------------------------------------------------------------------------------------
    def configure(self) -> None:
        """Write the configuration of supervisord and of each part."""
        self.part.prepare(parent=None)
        for part in self.parts:
            part.prepare(parent=pid_file())
        write_private(run_dir() / "supervisord.conf", self._configuration())

    def start(self) -> None:
        """Start it and wait until it answers. It has a session of its own, so Ctrl-C does not reach it."""
        clear_sockets()
        for folder in {socket_path().parent, settings.SOCKETS} - {run_dir()}:
            sockets.make_folder(folder)
        pid_file().unlink(missing_ok=True)
        startup = self.part.log.parent / "startup.log"
        self.process = Child(self._become, startup)
        end = time.monotonic() + START_LIMIT_S
        while not self.answers():
            if not self.alive() or time.monotonic() > end:
                words = startup.read_text(errors="replace").strip()[-1000:]
                raise SupervisorGone(f"supervisord did not start: {words or 'it does not answer'}")
            time.sleep(0.02)

    def _become(self) -> None:
        for name in MAKES_OWN:
            os.environ.pop(name, None)
        launch.become(self.part.folder)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def answers(self) -> bool:
        """Return whether it is running, also when it is shutting down."""
        try:
            self.call("getState")
        except SupervisorGone as problem:
            return isinstance(problem, SupervisorEnding)
        return True

    # --- queries and orders ----------------------------------------------------------------------------------------
    def call(self, method: str, *arguments, limit_s: float | None = None):
        """Make one XML-RPC call and return its result.

        Raises SupervisorGone when there is no answer in time (SupervisorEnding when it is shutting down),
        xmlrpc.client.Fault when it refuses.
        """
        transport = _Transport(ANSWER_LIMIT_S if limit_s is None else limit_s)
        try:
            with xmlrpc.client.ServerProxy("http://supervisord/RPC2", transport=transport) as server:
                return getattr(server.supervisor, method)(*arguments)
        except UNREADABLE as problem:
            raise SupervisorGone(str(problem)) from problem
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != SHUTDOWN_STATE:
                raise
            raise SupervisorEnding("supervisord is shutting down") from fault

    def start_part(self, part: Part) -> None:
        self._order("startProcess", part, ALREADY_STARTED, BEGIN_LIMIT_S)

    def stop_part(self, part: Part) -> None:
        """Order its end; it is not started again."""
        self._order("stopProcess", part, NOT_RUNNING, ANSWER_LIMIT_S)

    def shutdown(self) -> None:
        self.call("shutdown")

    def pids(self) -> dict[str, int]:
        """Return part name -> process id, 0 while it does not run."""
        return {row["name"]: row["pid"] for row in self.call("getAllProcessInfo")}

    def _order(self, method: str, part: Part, harmless: int, limit_s: float) -> None:
        try:
            self.call(method, part.name, False, limit_s=limit_s)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != harmless:
                raise SupervisorGone(f"supervisord cannot {method} {part.name}: {fault.faultString}") from fault

    # --- its configuration -------------------------------------------------------------------------------------------
    def _configuration(self) -> str:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        values = {
            "nodaemon": "true",
            "silent": "true",
            "logfile": self.part.log,
            "logfile_maxbytes": "10MB",
            "logfile_backups": 5,
            "pidfile": pid_file(),
            "umask": "077",
            "minfds": 1024 if hard == resource.RLIM_INFINITY else min(1024, hard),
        }
        if os.geteuid() == 0:
            values["user"] = "root"
        sections = [
            _section("unix_http_server", {"file": socket_path(), "chmod": "0700"}),
            _section("supervisord", values),
            _section(
                "rpcinterface:supervisor",
                {"supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"},
            ),
        ]
        return "\n".join(sections + [_program(part) for part in self.parts])


def restarted(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Return the names of the parts that have another process now than before."""
    return [name for name, pid in after.items() if pid and before.get(name) and pid != before[name]]


def _program(part: Part) -> str:
    values = {
        "command": shlex.join([sys.executable, str(part.folder)]),  # daemon.py reads the folder
        "priority": PRIORITY[part.stage],
        "autostart": "false",
        "autorestart": "true",
        "startsecs": 0,  # never gives up: see launch.take_turn
        "stopsignal": part.stop_signal,
        "stopwaitsecs": part.stop_wait_s,
        "killasgroup": "true",
        "redirect_stderr": "true",
        "stdout_logfile": str(part.log).replace("%", "%%"),  # supervisord substitutes names twice here
        "stdout_logfile_maxbytes": "10MB",
        "stdout_logfile_backups": 5,
    }
    return _section(f"program:{part.name}", values)


def _section(name: str, values: dict) -> str:
    lines = [f"{key}={str(value).replace('%', '%%')}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines, ""])
