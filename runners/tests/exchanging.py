"""The output of a job that exchanges a folder with a link while the platform uses it, for the tests of that race."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from contextlib import chdir, closing, contextmanager
from pathlib import Path

AT_FDCWD, EXCHANGE = -100, 2
CODE = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
one, other = map(os.fsencode, sys.argv[1:3])
print(flush=True)
while True:
    libc.renameat2(-100, one, -100, other, 2)
"""


def lay(output: Path, name: str = "secret-key") -> Path:
    """Lay out `x/{name}` and a link `y` to the storage root in a job's output; return the first, a harmless file."""
    (output / "x").mkdir(parents=True)
    (output / "x" / name).write_text("harmless")
    (output / "y").symlink_to("../../..")
    return output / "x" / name


def exchange(output: Path, *names: str) -> None:
    """Exchange two files or folders, `x` and `y` unless others are named, as the job can at any moment."""
    one, other = (os.fsencode(output / name) for name in names or "xy")
    assert ctypes.CDLL(None).renameat2(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE) == 0


def bind(path: Path) -> None:
    """Make a socket, which nobody listens at, of any length of path."""
    with closing(socket.socket(socket.AF_UNIX)) as link, chdir(path.parent):
        link.bind(path.name)


@contextmanager
def exchanged_all_the_time(output: Path):
    """Exchange `x` and `y` in a loop, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", CODE, str(output / "x"), str(output / "y")], stdout=subprocess.PIPE
    )
    try:
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()
