"""`make up` as an operator runs it: its own root and ports, real processes, real kills."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest
from django.conf import settings

from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import begin, reserve
from supervision import launch

START_S = LIMIT_S
SERVERS = {"database", "valkey", "nats"}
PARTS = SERVERS | {"web", "websockets", "data", "worker", "worker-gpu", "ingest", "reconcile", "aiops", "gateway"}
OURS = ("MLP_", "PYTEST_", "OMP_", "DATABASE_URL", "REDIS_URL", "NATS_URL")


class Platform:
    """A platform under test, controlled from outside."""

    def __init__(self, root: Path, python: str = sys.executable, **environment: str):
        self.root, self.python = root, python
        self.base = free_base()
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        self.environment |= {"MLP_ROOT": str(root), "MLP_PORT_BASE": str(self.base), **environment}
        self.output = root.with_name(root.name + ".out")
        self.process: subprocess.Popen | None = None

    def start(self) -> float:
        """Start it and wait until it reports that it is ready; return the time it took in s, to be printed."""
        began = time.monotonic()
        self.output.unlink(missing_ok=True)
        self.process = begin(self.command(), self.output, grace_s=60, env=self.environment)
        while "Ready after" not in self.output.read_text():  # until then it may be an older platform that is healthy
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() - began < START_S, f"not ready within {START_S} s: {self.output.read_text()}"
            time.sleep(0.05)
        return time.monotonic() - began

    def command(self, *arguments: str) -> list[str]:
        return [self.python, str(settings.BASE_DIR / "manage.py"), "up", *arguments]

    def call(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """Run `up` where it is expected to end by itself."""
        given = self.environment | environment
        return subprocess.run(self.command(*arguments), env=given, capture_output=True, text=True, timeout=2 * START_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(START_S)

    def manage(self, *words: str, **environment: str) -> subprocess.CompletedProcess:
        """Run a command of the platform."""
        command = [self.python, str(settings.BASE_DIR / "manage.py"), *words]
        given = self.environment | environment
        return subprocess.run(command, env=given, capture_output=True, text=True, timeout=2 * START_S, check=False)

    def must(self, *words: str, **environment: str) -> str:
        """Return what a command prints, which must succeed."""
        done = self.manage(*words, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def admin_password(self) -> str:
        """Return the operator's password: the one that was given, else the one that the platform has made."""
        given = self.environment.get("MLP_ADMIN_PASSWORD", "")
        return given or (self.root / "admin-password").read_text().strip()

    def get(self, path: str, port: int = 1, *, data: bytes | None = None, **headers: str) -> tuple[int, str, bytes]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.base + port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.headers["Content-Type"], refusal.read()

    def health(self) -> tuple[int, dict]:
        with suppress(OSError, ValueError):
            status, _, body = self.get("/healthz")
            return status, json.loads(body)
        return 0, {}

    def wait_healthy(self) -> dict:
        """Return the answer of /healthz once it is healthy."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            status, body = self.health()
            if status == 200:
                return body
            assert self.process.poll() is None, self.output.read_text()
            time.sleep(0.1)
        pytest.fail(f"not healthy within {LIMIT_S} s: {body}\n{self.output.read_text()}")

    def pids(self, part: str) -> list[int]:
        """Return the live processes of a part, its first one first."""
        folder = self.root / "run" / "parts" / part
        pids = [pid for _, pid in launch.processes(folder)]
        group = int((folder / "group").read_text()) if pids else 0
        return sorted(pids, key=lambda pid: (pid != group, pid))

    def leaders(self) -> dict[str, list[int]]:
        """Return part -> its first process: a different one means that the part was restarted."""
        return {part: self.pids(part)[:1] for part in sorted(PARTS)}

    def kill(self, *pids: int) -> None:
        for pid in pids:
            assert pid > 1
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_part(self, part: str) -> set[int]:
        """Kill all processes of a part and return them. The first one dies first: it would replace the others, and what
        it replaces in its last moment would answer on for a while.
        """
        first = self.pids(part)[0]
        self.kill(first)
        others = set(self.pids(part)) - {first}
        self.kill(*others)
        return {first} | others

    def healed(self, part: str, killed: set[int]) -> None:
        """Wait until the part runs in new processes and the platform is healthy."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            pids = self.pids(part)
            if pids and not killed & set(pids) and self.health()[0] == 200:
                return
            time.sleep(0.1)
        pytest.fail(f"{part} is not back: {self.health()}\n{self.output.read_text()}")

    def everything(self) -> list[int]:
        """Return all processes that use this root, including those of earlier starts."""
        pids = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and os.fsencode(self.root) + b"/" in about(entry):
                    pids.append(int(entry.name))
        return pids


def about(entry: Path) -> bytes:
    return os.readlink(entry / "cwd").encode() + b"/ " + (entry / "cmdline").read_bytes()


def free_base() -> int:
    """Return a base of ports that nobody else uses, also while the platform there is stopped."""
    for _ in range(200):
        base = random.randrange(15000, 30000, 20)
        if reserve(base) and all(is_free(base + number) for number in range(1, 15)):
            return base
    raise RuntimeError("no free ports")


def is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
