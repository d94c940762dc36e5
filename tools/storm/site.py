"""The platform in the storm: started as `make up` starts it, killed, started again, stopped; and what it leaves."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kernel import sockets

from . import processes
from .client import HOST

REPOSITORY = Path(__file__).resolve().parents[2]
PASSWORD = "only for this storm"
START_S = 300
OURS = ("MLP_", "PYTEST_", "DATABASE_URL", "REDIS_URL", "NATS_URL", "LD_PRELOAD", "FAKETIME")
# What a storm needs to be otherwise than by default: kills count as failures, registrations come by the hundred.
SETTINGS = {
    "MLP_ADMIN_PASSWORD": PASSWORD,
    "MLP_APP_MAX_FAILURES": "100",
    "MLP_REGISTRATIONS_PER_HOUR": "100000",
    "MLP_JOB_CANCEL_GRACE_S": "2",
    "MLP_DISK_RESERVE_MIB": "16",
    "MLP_DISK_MINIMUM_MIB": "8",
}


class NotHealthy(Exception):
    """The platform did not become healthy in time; the message has its last words."""


def begin(command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen:
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)


class Site:
    """One storage root with its ports, and the `up` that runs on it. `start_process` is how `up` is started."""

    def __init__(self, root: Path, base: int, start_process: Callable = begin, **settings: str):
        self.root, self.base, self.start_process = root, base, start_process
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self.environment = clean | SETTINGS | {"MLP_ROOT": str(root), "MLP_PORT_BASE": str(base)} | settings
        self.output = root.with_name(root.name + ".out")
        self.process: subprocess.Popen | None = None
        self.run_ids: set[str] = set()  # of all runs seen; their control groups and processes have it

    # --- start and end ------------------------------------------------------------------------------------------------
    def start(self) -> float:
        """Start it, on whatever is there, and wait until it is healthy; return the seconds that took."""
        began = time.monotonic()
        said = self.output.stat().st_size if self.output.exists() else 0
        self.process = self.start_process(self._command(), self.output, self.environment)
        while b"Ready after" not in self.output.read_bytes()[said:]:
            if self.process.poll() is not None or time.monotonic() - began > START_S:
                raise NotHealthy(f"it does not start: {self.words()}")
            time.sleep(0.1)
        return time.monotonic() - began

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(REPOSITORY / "manage.py"), "up", *arguments]

    def down(self) -> str:
        """Stop it as `make down` does; return what went wrong, "" for nothing."""
        self.process.terminate()
        try:
            code = self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            return f"it has not stopped after {START_S} s: {self.words()}"
        return "" if code == 0 else f"it has ended with status {code}: {self.words()}"

    def manage(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, str(REPOSITORY / "manage.py"), *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300)

    def words(self) -> str:
        return self.output.read_text(errors="replace")[-3000:]

    # --- health -------------------------------------------------------------------------------------------------------
    def health(self) -> tuple[int, str]:
        """Return the status of /healthz and what fails; (0, …) without an answer."""
        link = http.client.HTTPConnection(HOST, self.base + 1, timeout=20)
        try:
            link.request("GET", "/healthz")
            answer = link.getresponse()
            body = json.loads(answer.read())
            return answer.status, ", ".join(f"{name}: {body['parts'][name]}" for name in body["failing"] or ())
        except KeyError:
            return answer.status, ""
        except (OSError, ValueError, http.client.HTTPException) as problem:
            return 0, repr(problem)
        finally:
            link.close()

    def wait_healthy(self, limit_s: float) -> float:
        """Wait until /healthz answers 200; return the seconds that took. Raises NotHealthy."""
        began = time.monotonic()
        while True:
            status, words = self.health()
            if status == 200:
                return time.monotonic() - began
            if time.monotonic() - began > limit_s:
                raise NotHealthy(f"not healthy after {limit_s:.0f} s: {status} {words}\n{self.words()}")
            time.sleep(0.3)

    # --- processes ----------------------------------------------------------------------------------------------------
    def kinds(self, runs: bool = True) -> dict[str, list[int]]:
        """Return kind -> living processes, and remember the runs that are there."""
        for path in (self.root / "run" / "runs").glob("*/spec.json"):
            with contextlib.suppress(OSError, ValueError):
                self.run_ids.add(json.loads(path.read_text())["run_id"])
        return processes.kinds(self.root, self.process.pid, runs)

    def kill_everything(self) -> int:
        """Kill all its processes and all of its runs at once, as the loss of the machine does; return how many."""
        kinds, killed = self.kinds(), set()
        while pids := {pid for group in kinds.values() for pid in group} | set(self._processes()):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed |= pids
            self.process.poll()
            time.sleep(0.05)
            kinds = self.kinds()
        self.process.wait(60)
        return len(killed)

    def _processes(self) -> dict[int, str]:
        return processes.using(self.root) | processes.with_environment(b"MLP_RUN_ID=", self.run_ids)

    # --- what is left when it has been stopped ------------------------------------------------------------------------
    def remains(self) -> list[str]:
        """Return what a stopped platform without objects must not have left: a line for each."""
        self.kinds()
        left = [f"process {pid} is left: {line[:200]}" for pid, line in self._processes().items()]
        left += [f"port {port} is still open" for port in range(self.base + 1, self.base + 13) if _is_open(port)]
        left += [f"control group {path} is left" for path in _control_groups(self.run_ids)]
        run = self.root / "run"
        places = (run / "runs", sockets.folder(self.root), run / "datasets", self.root / "datasets" / ".spool")
        places += (run / "nginx" / "apps", run / "nginx" / "temp")
        for place in places:
            left += [f"{path} is left" for path in place.rglob("*") if not path.is_dir() or path.parent.name == "runs"]
        for pattern in ("*.part", "*.pid", "*.sock", ".*.forgotten", "trash-*"):
            left += [f"{path} is left" for path in self.root.rglob(pattern)]
        return left


def _control_groups(run_ids: set[str]) -> list[str]:
    """Return the control groups of these runs. Those of other platforms may go meanwhile, which is no error."""
    tree = os.walk("/sys/fs/cgroup")
    return sorted(os.path.join(path, name) for path, names, _ in tree for name in run_ids.intersection(names))


def _is_open(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
