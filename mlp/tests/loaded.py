"""Programs in Python that begin as forks of a process which has loaded the platform's code: see forks.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from django.conf import settings

from .patience import LIMIT_S
from .servers import begin


class Fork:
    """A program that runs as a fork; to the tests what subprocess.Popen is."""

    def __init__(self, loaded: Loaded, pid: int):
        self.loaded, self.pid = loaded, pid

    def poll(self) -> int | None:
        return self.loaded.ask(self.pid)

    def wait(self, limit_s: float = LIMIT_S) -> int:
        end = time.monotonic() + limit_s
        while (status := self.poll()) is None:
            assert time.monotonic() < end, f"process {self.pid} has not ended"
            time.sleep(0.02)
        return status


class Loaded:
    """The process that has loaded the modules, with this environment; what it has begun ends with it."""

    def __init__(self, modules: tuple[str, ...], log: Path, environment: dict[str, str]):
        self.log, self.environment = log, environment
        command, pipe = [sys.executable, "-m", "mlp.tests.forks", *modules], subprocess.PIPE
        streams = {"stdin": pipe, "stdout": pipe, "text": True}
        self.process = begin(command, log, env=environment, cwd=settings.BASE_DIR, **streams)

    def ask(self, request: list[str] | int) -> int | None:
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, self.log.read_text()[-2000:]
        return json.loads(answer)

    def begin(self, command: list[str]) -> Fork:
        return Fork(self, self.ask([str(self.log), *command]))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
