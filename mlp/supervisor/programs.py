"""What the programs beside Python say of their versions. Asked by the operators' overview (mlp.machine)."""

from __future__ import annotations

import re
import subprocess
from functools import cache

from mlp.runners import confine

from . import gateway

LIMIT_S = 2


@cache
def nginx() -> str:
    return _version(gateway.nginx(), "-v")


@cache
def bubblewrap() -> str:
    """Of the one that would be taken first; "" where there is none."""
    found = confine.bwraps()
    return _version(found[0], "--version") if found else ""


def _version(program: str, option: str) -> str:
    """The first number in what the program says of itself; "" when it says none."""
    try:
        done = subprocess.run(
            [program, option], capture_output=True, text=True, timeout=LIMIT_S, env={}, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    number = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return number[0] if number else ""
