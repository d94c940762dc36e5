"""Ends the servers of a test run when the process that started them is gone, however it went (SIGKILL included).

`python -I -S guardian.py FOLDER`, standard library only, so that it costs milliseconds. Each line of its standard
input, `PID SIGNAL`, names a process to end and the signal that ends it in order. The input ends when the process at its
other end closes it or dies: then all of them are ended, killed after GRACE_S, and FOLDER is removed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

GRACE_S = 5.0


def main(folder: Path) -> None:
    watched: list[tuple[int, int]] = []
    for line in sys.stdin:
        pid, number = map(int, line.split())
        with contextlib.suppress(ProcessLookupError):
            watched.append((os.pidfd_open(pid), number))  # from here on it is this very process, not just its number
    for pidfd, number in watched:
        send(pidfd, number)
    end = time.monotonic() + GRACE_S
    for pidfd, _ in watched:
        if not select.select([pidfd], [], [], max(0.0, end - time.monotonic()))[0]:
            send(pidfd, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # of a worker of a parallel run: the first process's folder, where nothing is left in it


def send(pidfd: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
