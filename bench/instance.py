"""A platform for one benchmark, with ports and a storage root of its own, called as its users call it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
PASSWORD = "only for this benchmark"
START_S = 120
BASES = range(20_000, 30_000, 100)  # below the ports of outgoing connections and those of applications
PORTS = 100  # that a platform and the peers beside it may take from its base on


@dataclass
class Instance:
    """A running platform. `call` raises urllib's HTTPError for every answer that is not a success."""

    root: Path
    base: int
    token: str = ""
    user: str = "bench"

    @property
    def port(self) -> int:
        return self.base + 1

    @property
    def environment(self) -> dict[str, str]:
        mine = {"MLP_ROOT": str(self.root), "MLP_PORT_BASE": str(self.base), "MLP_ADMIN_PASSWORD": PASSWORD}
        return {**os.environ, **mine}

    def request(self, method: str, path: str, data: bytes | None = None, headers: dict | None = None) -> bytes:
        given = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        whole = urllib.request.Request(f"http://{HOST}:{self.port}{path}", data, {**given, **(headers or {})})
        whole.method = method
        with urllib.request.urlopen(whole, timeout=120) as answer:
            return answer.read()

    def call(self, method: str, path: str, body=None) -> object:
        data = None if body is None else json.dumps(body).encode()
        return json.loads(self.request(method, f"/api/v1{path}", data, {"Content-Type": "application/json"}))

    def basic(self, user: str, password: str, path: str) -> bytes:
        """Return the answer to a GET with HTTP Basic."""
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        return self.request("GET", path, None, {"Authorization": f"Basic {login}"})

    def script(self, name: str, text: str) -> None:
        """Upload a script to the user's home."""
        self.request("PUT", f"/data/{self.user}/.home/{name}", text.encode())

    def wait_job(self, name: str, state: str, seconds: float = 60) -> dict:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            job = self.call("GET", f"/users/{self.user}/jobs/{name}")
            if job["state"] == state:
                return job
            if job["state"] == "error":
                raise SystemExit(f"the job {name} failed: {job['reason']}")
            time.sleep(0.05)
        raise SystemExit(f"the job {name} is not {state} after {seconds} s")

    def wait_free(self, seconds: float = 60) -> None:
        """Wait until nothing of the user holds resources any more: what was deleted or has ended is gone."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            tenant = self.call("GET", "/tenants/default")
            if not any(tenant[f"{kind}_inuse"] for kind in ("cpu", "gpu", "ram")):
                return
            time.sleep(0.02)
        raise SystemExit(f"the resources of the last measurement are not free after {seconds} s")

    def manage(self, *arguments: str, text: str | None = None) -> str:
        command = [sys.executable, str(MANAGE), *arguments]
        done = subprocess.run(command, env=self.environment, input=text, text=True, capture_output=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout


def free_base() -> int:
    """Return a base whose ports are all free, other ones in each run, so that several benchmarks can run at a time.
    BENCH_PORT_BASE names one.
    """
    if given := os.environ.get("BENCH_PORT_BASE"):
        return int(given)
    bases = list(BASES)
    random.shuffle(bases)
    for base in bases:
        if all(_is_free(base + offset) for offset in range(PORTS)):
            return base
    raise SystemExit(f"no {PORTS} free ports in a row between {BASES.start} and {BASES.stop}")


def free_port() -> int:
    """Return a free port for a peer."""
    with socket.create_server((HOST, 0)) as probe:
        return probe.getsockname()[1]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def running(base: int | None = None, **settings: str) -> Iterator[Instance]:
    """Start a platform, register the user `bench`, and stop the platform at the end."""
    with tempfile.TemporaryDirectory(prefix="mlp-bench-") as root:
        instance = Instance(Path(root), base or free_base())
        command = [sys.executable, str(MANAGE), "up"]
        given = {**instance.environment, **settings}
        # A session of its own, so that Ctrl-C ends the benchmark first, which then stops the platform.
        process = subprocess.Popen(command, env=given, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            _wait_healthy(instance, process)
            instance.call("POST", "/users", {"username": instance.user, "password": PASSWORD})
            instance.token = json.loads(instance.basic(instance.user, PASSWORD, f"/api/v1/users/{instance.user}/token"))
            yield instance
        finally:
            process.terminate()
            process.wait(60)


def _wait_healthy(instance: Instance, process: subprocess.Popen) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            if json.loads(instance.request("GET", "/healthz"))["status"] == "ok":
                return
        time.sleep(0.2)
    raise SystemExit("the platform did not start")


def spread(times: list[float]) -> str:
    """Return `median 1.2 ms   p99 3.4 ms` of times in seconds."""
    ordered = sorted(times)
    median, late = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"median {1000 * median:8.2f} ms   p99 {1000 * late:8.2f} ms"


def load() -> str:
    """Return how busy the machine is: `(load 0.52 on 2 cores)`."""
    return f"(load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores)"
