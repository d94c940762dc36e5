"""The memory and the processor time of every part of a platform, each with its children, from /proc.

`python bench/memory.py ROOT [SECONDS]` prints what the platform on that root, which runs and is left alone meanwhile,
takes of one core, how often it wakes, in how many processes, and of the memory: each part, `up` and supervisord.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from supervision import launch

EVERY_S = 0.2
MIB = 1 << 20


def processes(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield each running process of the platform: its part, and its folder in /proc."""
    for folder, pidfd in launch.leftovers(*(root / "run" / "parts").glob("*/")):
        number = Path(f"/proc/self/fdinfo/{pidfd}").read_text().split("Pid:")[1].split()[0]
        os.close(pidfd)
        yield folder.name, Path("/proc") / number


def now(root: Path) -> Counter[str]:
    """Return the memory of each part in bytes; pages that several processes share are divided among them."""
    sizes: Counter[str] = Counter()
    for part, process in processes(root):
        with contextlib.suppress(OSError, IndexError):  # it has ended meanwhile
            sizes[part] += int((process / "smaps_rollup").read_text().split("\nPss:")[1].split()[0]) << 10
    return sizes


def cpu(root: Path) -> Counter[str]:
    """Return the seconds of processor time that each part has used so far: what work costs, however busy the machine
    is.
    """
    used: Counter[str] = Counter()
    for part, process in processes(root):
        used[part] += cpu_of(process)
    return used


def cpu_of(process: Path) -> float:
    """Return the same of one process, and of its children that have ended; 0 when it has ended itself."""
    with contextlib.suppress(OSError):
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


class Watch:
    """Samples all parts until the end of the block: `before` and `peak`, by part."""

    def __init__(self, root: Path):
        self.root = root
        self.before = now(root)
        self.peak = self.before.copy()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while not self.stop.wait(EVERY_S):
            self.peak |= now(self.root)

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_problem) -> None:
        self.stop.set()
        self.thread.join()
        self.peak |= now(self.root)

    @property
    def growth(self) -> tuple[str, float]:
        """The part that grew most, and by how many MiB."""
        part = max(self.peak, key=lambda part: self.peak[part] - self.before[part])
        return part, (self.peak[part] - self.before[part]) / MIB


def precise(process: Path) -> float:
    """Return the seconds of processor time of the threads that a process has, to the microsecond."""
    used = 0
    for thread in process.glob("task/*/schedstat"):
        with contextlib.suppress(OSError, IndexError):
            used += int(thread.read_text().split()[0])
    return used / 1e9


def everything(root: Path) -> dict[Path, str]:
    """Return the folder in /proc of each process of the platform, with the part's name."""
    found = {process: part for part, process in processes(root)}
    with contextlib.suppress(OSError, ValueError):
        found[Path("/proc", str(int((root / "run" / "up.lock").read_text())))] = "up"
    return found


def wakes(process: Path) -> int:
    """Return how often the threads that a process has have waited: each wait ends with a wake-up."""
    count = 0
    for thread in process.glob("task/*/status"):
        with contextlib.suppress(OSError, IndexError):
            count += int(thread.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return count


def idle(root: Path, seconds: float) -> tuple[Counter[str], Counter[str]]:
    """Return the part of a core that each part takes, in percent, and its wake-ups a second."""
    before = {process: (precise(process), wakes(process)) for process in everything(root)}
    time.sleep(seconds)
    used: Counter[str] = Counter()
    woken: Counter[str] = Counter()
    for process, part in everything(root).items():
        spent, waits = before.get(process, (0.0, 0))
        used[part] += 100 * max(0.0, precise(process) - spent) / seconds
        woken[part] += max(0, wakes(process) - waits) / seconds
    return used, woken


def memory(root: Path) -> dict[str, Counter[str]]:
    """Return of each part how many `processes` it has, and in KiB the fields of their smaps_rollup: `Pss`, of which
    `Pss_Anon` is shared with no other platform on the machine, unlike the pages of programs and libraries.
    """
    found: dict[str, Counter[str]] = {}
    for process, part in everything(root).items():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            lines = (process / "smaps_rollup").read_text().splitlines()[1:]
            fields = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
            found.setdefault(part, Counter()).update({"processes": 1, **fields})
    return found


def main() -> None:
    root, seconds = Path(sys.argv[1]).resolve(), float(sys.argv[2]) if sys.argv[2:] else 120.0
    (shares, woken), sizes = idle(root, seconds), memory(root)
    sizes["all"] = sum(sizes.values(), Counter())
    shares["all"], woken["all"] = sum(shares.values()), sum(woken.values())
    print(f"{'part':12} processes    PSS MiB   anonymous   % of a core   wake-ups/s")
    for part, size in sorted(sizes.items(), key=lambda row: row[1]["Pss"]):
        pss, alone = size["Pss"] / 1024, size["Pss_Anon"] / 1024
        print(f"{part:12} {size['processes']:9} {pss:10.1f} {alone:11.1f} {shares[part]:13.3f} {woken[part]:12.2f}")


if __name__ == "__main__":
    main()
