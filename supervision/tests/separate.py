"""The parts of a platform, each started by itself and in two replicas, against servers that are given."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import requests
from django.conf import settings

from mlp.tests import servers
from mlp.tests.patience import LIMIT_S
from supervision.tests.running import OURS, free_base

ADMIN_PASSWORD = "battery staple horse"
TWICE = ("web", "websockets", "data", "worker", "ingest", "aiops", "reconcile", "gateway")
PARTS = (*((name, number) for name in TWICE for number in (0, 1)), ("worker-gpu", 0))


class Separate:
    """`base` has the ports of each replica: gateway N passes requests to web N, websockets N and data N."""

    def __init__(self, folder: Path):
        self.folder, self.root = folder, folder / "root"
        self.base = [free_base(), free_base()]
        while abs(self.base[0] - self.base[1]) < 20:
            self.base[1] = free_base()
        self.running: dict[tuple[str, int], subprocess.Popen] = {}
        self.given = {
            "DATABASE_URL": new_database(),
            "REDIS_URL": servers.start_valkey(folder),
            "NATS_URL": servers.start_nats(folder),
        }

    def environment(self, part: str, number: int) -> dict[str, str]:
        base = self.base[number]
        ports = {"WEB": 3, "WEBSOCKET": 4, "DATA": 5, "GATEWAY": 1, "APP_GATEWAY": 2}
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(OURS)},
            **self.given,
            **{f"MLP_{name}_ADDRESS": f"127.0.0.1:{base + port}" for name, port in ports.items()},
            "MLP_ROOT": str(self.root),
            "MLP_PORT_BASE": str(base),
            "MLP_INSTANCE_DIR": str(self.folder / f"{part}-{number}"),
            "MLP_ADMIN_PASSWORD": ADMIN_PASSWORD,
        }

    def start(self, part: str, number: int = 0) -> subprocess.Popen:
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "part", part]
        log = self.log(part, number)
        self.running[part, number] = servers.begin(command, log, env=self.environment(part, number))
        return self.running[part, number]

    def log(self, part: str, number: int) -> Path:
        return self.folder / f"{part}-{number}.log"

    def kill(self, part: str, number: int) -> None:
        """Kill all processes of a replica at once, as when its machine is lost."""
        process = self.running.pop((part, number))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LIMIT_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def url(self, number: int) -> str:
        return f"http://127.0.0.1:{self.base[number] + 1}"

    def healthy(self, number: int) -> None:
        """Wait until everything works, as this gateway tells."""
        end, said = time.monotonic() + LIMIT_S, ""
        while time.monotonic() < end:
            with contextlib.suppress(requests.RequestException):
                answer = requests.get(f"{self.url(number)}/healthz", timeout=LIMIT_S)
                if answer.status_code == 200:
                    return
                said = answer.text
            for (part, of), process in self.running.items():
                assert process.poll() is None, f"{part} {of} ended: {self.log(part, of).read_text()[-3000:]}"
            time.sleep(0.2)
        raise AssertionError(f"not healthy after {LIMIT_S} s: {said}")


def new_database() -> str:
    """Create an empty database on the suite's server and return its URL."""
    server = os.environ["DATABASE_URL"].rpartition("/")[0]
    name = f"parts_{os.getpid()}_{time.time_ns()}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as link:
        link.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    return f"{server}/{name}"
