"""What the runner tests share: a spec for a few lines of Python, and waiting for an event with a deadline."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from runners.base import Runner, RunSpec, RunStatus

T = TypeVar("T")
ENVIRONMENT = {"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def eventually(question: Callable[[], T], seconds: float = 90, what: str = "") -> T:
    """The first answer that is true; fails after the deadline."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what or question}"
        time.sleep(0.005)
    return answer


def spec(folder: Path, code: str, name: str = "job-1-1", **fields) -> RunSpec:
    """A run of `code` by this Python, its working folder and log below `folder`."""
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


def end_of(runner: Runner, name: str = "job-1-1", seconds: float = 90) -> RunStatus:
    """The status once the run does not run any more."""

    def ended() -> RunStatus | None:
        status = runner.poll(name)
        return None if status.state == "running" else status

    return eventually(ended, seconds, f"the end of {name}")


def alive(pid: int) -> bool:
    """Whether the process exists and is more than a record waiting for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {b"Z", b"X"}


def number_in(path: Path) -> int:
    """The number that a script writes into a file (with its line end, so that none is read half)."""
    return int(eventually(lambda: path.exists() and path.read_text().endswith("\n") and path.read_text()))
