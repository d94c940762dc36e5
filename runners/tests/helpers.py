"""Helpers of the runner tests: a spec for a few lines of Python, and waiting for a condition with a deadline."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mlp.tests.patience import LIMIT_S
from runners.base import Runner, RunSpec, RunStatus

T = TypeVar("T")
ENVIRONMENT = {"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def eventually(question: Callable[[], T], seconds: float = LIMIT_S, what: str = "") -> T:
    """Return the first true result; fail after the deadline."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what or question}"
        time.sleep(0.005)
    return answer


def spec(folder: Path, code: str, name: str = "job-1-1", **fields) -> RunSpec:
    """Return the spec of a run of `code` with this Python, its working directory and log below `folder`."""
    cwd = folder / "work"
    cwd.mkdir(exist_ok=True)
    values = {
        "name": name,
        "command": [sys.executable, "-I", "-S", "-c", code],
        "cwd": cwd,
        "environment": ENVIRONMENT,
        "log": folder / f"{name}.log",
    }
    return RunSpec(**values | fields)


def end_of(runner: Runner, name: str = "job-1-1", seconds: float = LIMIT_S) -> RunStatus:
    """Return the status once the run is no longer running."""

    def ended() -> RunStatus | None:
        status = runner.poll(name)
        return None if status.state == "running" else status

    return eventually(ended, seconds, f"the end of {name}")


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {b"Z", b"X"}


def number_in(path: Path) -> int:
    """Return the number that a script writes into a file (with its line end, so that none is read half)."""
    return int(eventually(lambda: path.exists() and path.read_text().endswith("\n") and path.read_text()))
