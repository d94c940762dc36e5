"""A pipe by which the shims of all runs notify the one process that watches them of each end, by the run's name, a
line each. Standard library only.

Only a hint: what has ended is in the records. Nobody may be listening, and a full pipe says enough already.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def heard(path: str, changed: Callable[[list[str]], None]) -> Iterator[None]:
    """Call the function with the names of runs that have ended, from another thread, while the context lasts. Raises
    OSError.
    """
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    # Open for both, so that it never reports an end when the last shim closes it.
    pipe, (stop, stopped) = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)

    def read() -> None:
        rest = b""
        while stop not in select.select([pipe, stop], [], [])[0]:
            with contextlib.suppress(BlockingIOError):
                *lines, rest = (rest + os.read(pipe, 4096)).split(b"\n")
                # A shim of an older release, which its run may have outlived, writes a point and no name.
                changed([line.lstrip(b".").decode(errors="replace") for line in lines])

    reader = threading.Thread(target=read, name="ends-of-runs", daemon=True)
    reader.start()
    try:
        yield
    finally:
        os.close(stopped)
        reader.join()
        os.close(stop)
        os.close(pipe)


def tell(path: str, name: str) -> None:
    """Notify the process that listens there of the end of this run."""
    with contextlib.suppress(OSError):
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(pipe, name.encode() + b"\n")
        finally:
            os.close(pipe)
