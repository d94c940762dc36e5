"""Kills of a command at a named moment, however fast the machine is.

A moment is a list of steps, each an audit event of Python with words that are in its arguments: ("os.rename",
"/objects/") is that something is renamed to or from a folder `objects`. With the last step the command is killed with
SIGKILL, before it does what the event says, also when one of its Python processes does it: that one goes no further.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from mlp.tests.servers import begin

LIMIT_S = 600

Moment = list[tuple[str, str]]


def environment(moment: Moment, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a command is killed at the moment."""
    folders = [str(Path(__file__).parent), *filter(None, [given.get("PYTHONPATH")])]
    return {**given, "PYTHONPATH": os.pathsep.join(folders), "KILLED_AT": json.dumps(moment)}


def kill_at(moment: Moment, command: list[str], log: Path, given: Mapping[str, str], **options) -> None:
    """Run a command until it is killed at the moment. Raises AssertionError where it ends before."""
    log.unlink(missing_ok=True)
    process = begin(command, log, env=environment(moment, given), **options)
    try:
        ended = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        ended = process.wait()
        raise AssertionError(f"not within {LIMIT_S} s: {moment}: {log.read_text()[-2000:]}") from None
    assert ended == -signal.SIGKILL, f"it has ended with {ended}, before {moment}: {log.read_text()[-2000:]}"
