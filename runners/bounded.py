"""Short programs that may never end by themselves, such as those that look at a file system that does not answer."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

KILLED_S = 0.1  # for the end of a program that was killed; one that the kernel holds ends when it lets it


def succeeds(program: Path, arguments: Iterable[str], limit_s: float) -> bool:
    """Return whether a program for Python alone exits with 0 within so many seconds; it is killed after these. Raises
    OSError where it cannot be started.
    """
    command = [sys.executable, "-I", "-S", str(program), *arguments]
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    try:
        return process.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_S)
        return False
