"""The processes of each part: how many, when they began, and what memory and processor time they use."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from prometheus_client import Metric

from supervision import launch

from .families import counter, gauge

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
KEEP_S = 60.0  # the kernel walks through all memory of a process to say what of it is shared
_last: tuple[float, list[Metric]] = (float("-inf"), [])


def collect() -> list[Metric]:
    """Return the metrics, at most KEEP_S old."""
    global _last
    if time.monotonic() - _last[0] > KEEP_S:
        _last = time.monotonic(), list(_collect())
    return _last[1]


def _collect() -> Iterator[Metric]:
    booted, counts, memory, used, began = _booted(), Counter(), Counter(), Counter(), {}
    for part, process in _processes():
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            memory[part] += _memory(process)
            counts[part] += 1
            # with the children that have ended, so that the sum does not fall when a worker is replaced
            used[part] += sum(map(int, fields[11:15])) / TICKS
            began[part] = min(began.get(part, float("inf")), booted + int(fields[19]) / TICKS)
    for name, help, values in (
        ("mlp_part_processes", "Processes of the part.", counts),
        ("mlp_part_memory_bytes", "Memory of the part; of what processes share, each has its share.", memory),
        ("mlp_part_start_time_seconds", "When the part was started, as Unix time.", began),
    ):
        yield gauge(name, help, ("part",), [((part,), value) for part, value in sorted(values.items())])
    rows = [((part,), value) for part, value in sorted(used.items())]
    yield counter("mlp_part_cpu_seconds", "Processor time that the part has used.", ("part",), rows)


def _processes() -> Iterator[tuple[str, Path]]:
    """Yield each process's part and its folder in /proc; `launch.processes` does not return the process that asks."""
    yield os.environ.get("MLP_PART", ""), Path("/proc/self")
    for folder, pid in launch.processes(*(settings.MLP_ROOT / "run" / "parts").glob("*/")):
        yield folder.name, Path(f"/proc/{pid}")


def _memory(process: Path) -> int:
    """Return the proportional set size; the resident one where the kernel does not say it to us."""
    try:
        text = (process / "smaps_rollup").read_text()
        return int(text.split("\nPss:")[1].split()[0]) << 10
    except (PermissionError, IndexError):
        return int((process / "statm").read_text().split()[1]) * PAGE


def _booted() -> float:
    """Return when the machine was started, as Unix time."""
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    return float(line.split()[1])
