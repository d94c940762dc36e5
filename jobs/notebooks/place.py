"""How a run executes a notebook: the program, its arguments, and the file that says why it has failed."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from pathlib import Path

from kernel import sanitize, storage
from kernel.messages import Message
from runners import Mount, Runner

from . import parameters

PROGRAM = Path(__file__).with_name("program")
SEEN = "/opt/mlp-notebook"
FAILURE = "log/notebook.json"  # in the run's workspace
FAILED = 1  # exit code of the program where a cell has failed
MAX_FAILURE = 16 << 10  # bytes
MAX_ERROR = 500  # characters


def output_of(entry: str) -> str:
    """Return the name of the executed notebook among the outputs."""
    return posixpath.basename(entry)


def mounts() -> tuple[Mount, ...]:
    """Return what the run sees of the program."""
    return (Mount(PROGRAM, SEEN),)


def command(runner: Runner, code: str, entry: str, args: Sequence[str], workspace: str) -> list[str]:
    """Return the program and its arguments; `code` and `workspace` are folders as the run sees them."""
    values = json.dumps(parameters.of_arguments(args))
    output = f"{workspace}/{output_of(entry)}"
    program = f"{runner.place(PROGRAM, SEEN)}/execute.py"
    return [program, f"{code}/{entry}", output, f"{workspace}/{FAILURE}", values]


def failure(folder: Path) -> str | None:
    """Return which cell of the notebook has failed, and by what; None where its program has not said so."""
    file = storage.open_file(folder, FAILURE)
    if file is None:
        return None
    with file:
        try:
            found = sanitize.read_json(file.read(MAX_FAILURE))
            number, error = int(found["cell"]), found["error"]
        except (ValueError, TypeError, KeyError):
            return None
    if not isinstance(error, str) or number < 1:
        return None
    first = sanitize.text(error.splitlines()[0] if error else "")[:MAX_ERROR]
    return Message("cell %(number)s: %(error)s", number=number, error=first)
