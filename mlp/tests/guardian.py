"""Ends the servers of a test run when the process that started them is gone, however it ended (SIGKILL included).

`python -I -S guardian.py FOLDER`, standard library only, so that it costs milliseconds. Each line of its standard
input, `PID SIGNAL GRACE`, names a process, the signal that ends it in order, and its seconds for that. The input ends
when the process at its other end closes it or dies: then all of them are ended, killed after their grace, and FOLDER is
removed.
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


def main(folder: Path) -> None:
    watched: list[tuple[int, int, int]] = []
    for line in sys.stdin:
        pid, number, grace_s = map(int, line.split())
        with contextlib.suppress(ProcessLookupError):
            watched.append(
                (os.pidfd_open(pid), number, grace_s)
            )  # from here on it is this very process, not just its number
    for pidfd, number, _ in watched:
        send(pidfd, number)
    asked = time.monotonic()
    for pidfd, _, grace_s in watched:
        if not select.select([pidfd], [], [], max(0.0, asked + grace_s - time.monotonic()))[0]:
            send(pidfd, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # of a worker of a parallel run: the first process's folder, where nothing is left in it


def send(pidfd: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
