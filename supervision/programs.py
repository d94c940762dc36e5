"""What the programs beside Python say of their versions. Asked by the operators' overview (mlp.operators.machine)."""

from __future__ import annotations

import re
import subprocess
from functools import cache

from runners import confine

from . import nginx

LIMIT_S = 10  # a busy machine takes its time to start a program


def nginx_version() -> str:
    return _told(nginx.nginx(), "-v")


def bubblewrap_version() -> str:
    """Of the one that would be taken first; "" where there is none."""
    found = confine.bwraps()
    return _told(found[0], "--version") if found else ""


def _told(program: str, option: str) -> str:
    """The program's version; "" when it says none, which stands for nobody else: it is asked again next time."""
    try:
        return _version(program, option)
    except LookupError:
        return ""


@cache
def _version(program: str, option: str) -> str:
    """The first number in what the program says of itself. Raises LookupError when it says none."""
    try:
        done = subprocess.run(
            [program, option], capture_output=True, text=True, timeout=LIMIT_S, env={}, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise LookupError(program) from problem
    number = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    if number is None:
        raise LookupError(program)
    return number[0]
