"""Processes of runs on this machine that outlive their supervisor. Called by `local` where it finds such a run."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from . import processes

RUN_ID = "MLP_RUN_ID"


def kill_stuck(path: Path, shim: int) -> None:
    """Kill a bubblewrap whose outer process was killed together with the shim before it released the inner one, which
    then waits for ever with the lock. A living shim does that itself.
    """
    if os.fsencode(path) not in processes.words_of(Path(f"/proc/{shim}/cmdline")):
        own = {os.fsencode(path / "tmp"), b"--die-with-parent"}
        _kill(lambda entry: own.issubset(processes.words_of(entry / "cmdline")))


def kill_of(run_id: str) -> None:
    """Kill what is left after shim and guard were killed together: the processes with the run's id in their
    environment. Those of other users cannot be read, and do not belong to the run.
    """
    mark = f"{RUN_ID}={run_id}".encode()
    for _ in range(100):
        if not _kill(lambda entry: mark in processes.words_of(entry / "environ")):
            return
        time.sleep(0.01)


def _kill(matches: Callable[[Path], bool]) -> bool:
    """Send SIGKILL to each process whose folder in /proc matches; return whether there was one."""
    any_left = False
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            process = os.pidfd_open(int(entry.name))  # opened first: what is read next is of this very process
            try:
                if matches(entry):
                    any_left = True
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)
    return any_left
