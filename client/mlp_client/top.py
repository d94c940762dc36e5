"""`top`: the processes of a running job and what they use, again and again in the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from urllib.parse import quote

from . import shown
from .connection import Rest
from .texts import tr
from .transfer.errors import REFUSED, Failure
from .transfer.progress import duration

PAUSE_S, SHORTEST_S = 2.0, 1.0


def declare(command) -> None:
    """Add the verb."""
    parser = command("top", top, tr("show the processes of a running job and what they use"))
    parser.add_argument("name", metavar="JOB")
    words = tr("seconds between two updates (default: 2); Ctrl-C ends it")
    parser.add_argument("-n", "--interval", type=_pause, default=PAUSE_S, metavar="S", help=words)
    parser.add_argument("--once", action="store_true", help=tr("print them once, as where the output is no terminal"))


def top(rest: Rest, options: argparse.Namespace, say):
    """Show what the job does until it has ended or Ctrl-C; once where the output is no terminal. Raises Failure."""
    path = rest.path(f"jobs/{quote(options.name, safe='')}/processes")
    options.show = lambda doing: [shown.line(each) for each in _lines(options.name, doing)]
    answer = rest.web.call("GET", path)
    if options.once or options.json or not sys.stdout.isatty():
        return answer.json()
    shown.text("\x1b[2J")
    try:
        while answer.status == 200:
            shown.screen(_lines(options.name, answer.json()))
            time.sleep(options.interval)
            answer = rest.web.call("GET", path, expect=(403,))
    except KeyboardInterrupt:
        return None
    if rest.get(f"jobs/{quote(options.name, safe='')}")["state"] == "running":
        raise Failure(REFUSED, answer.msg)
    say(answer.msg)  # it has ended, or is queued again
    return None


def _lines(name: str, doing: dict) -> list:
    """Return what is shown: a line about the whole run, and a table."""
    limits = doing["limits"]
    whole = tr(
        "job {name}: CPU {cpu:.2f} of {cpus:g}, memory {ram} of {rams}",
        name=name, cpu=doing["cpu"], cpus=limits["cpu"], ram=_size(doing["ram"]), rams=_size(limits["ram"]),
    )  # fmt: skip
    if doing["gpu"] is not None:
        whole += tr(", GPU {percent:.0f}%", percent=doing["gpu"])
    if doing["gpu_ram"] is not None:
        whole += tr(", GPU memory {ram}", ram=_size(doing["gpu_ram"]))
    worker = (tr("WORKER"), lambda row: row["worker"])
    used = ((tr("CPU"), lambda row: f"{row['cpu']:.2f}"), (tr("MEMORY"), lambda row: _size(row["ram"])))
    if doing["processes"]:
        columns = [("PID", lambda row: row["pid"]), *([worker] if len(doing["workers"]) > 1 else []), *used]
        columns += [
            (tr("THREADS"), lambda row: row["threads"]),
            (tr("AGE"), lambda row: duration(row["age"])),
            (tr("COMMAND"), lambda row: row["command"]),
        ]
        lines = shown.table_lines(doing["processes"], columns)
    else:
        lines = shown.table_lines(doing["workers"], [worker, *used]) if doing["workers"] else []
    if doing["left_out"]:
        lines.append(tr("{count} more that use less", count=doing["left_out"]))
    return [whole, *lines, *([doing["note"]] if doing["note"] else [])]


def _size(mebi: float) -> str:
    """Return an amount of memory: `512M`, `1.5G`."""
    return f"{mebi:.0f}M" if mebi < 1024 else f"{mebi / 1024:.1f}G"


def _pause(text: str) -> float:
    value = float(text)
    if not SHORTEST_S <= value < 3600:
        raise ValueError
    return value


_pause.__name__ = "seconds"
