"""`make storm`: half an hour, or MINUTES; SEED decides what happens. Exit status 1 when anything differs."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import faults, processes
from .extras import Clock, Disk
from .site import Site
from .whole import Report, storm

HEAL_S = 30  # what is promised: docs/architecture.md
BASE = 28000


def main() -> int:
    minutes, seed = float(os.environ.get("MINUTES") or 30), int(os.environ.get("SEED") or random.randrange(10**6))
    folder = Path(os.environ.get("STORM_ROOT") or tempfile.mkdtemp(prefix="mlp-storm-"))
    root = folder / "root"
    root.mkdir(parents=True)
    disk, clock = Disk.mount(root), Clock.build(folder)
    say(f"seed {seed}, {minutes:g} minutes, in {folder}")
    if disk is None:
        say("left out: a full disk, since no file system can be mounted here (it takes root)")
    if clock is None:
        say("left out: jumps of the clock, since there is no C compiler")
    base = int(os.environ.get("MLP_PORT_BASE") or BASE)
    site = Site(root, base, **(clock.environment if clock else {}))
    plan = faults.long(minutes)
    try:
        report = storm(
            site, plan, seed, heal_s=HEAL_S, patience_s=400, minutes=minutes, disk=disk, clock=clock, say=say
        )  # fmt: skip
    finally:
        if site.process and site.process.poll() is None:
            site.kill_everything()
        if disk:
            disk.unmount()
    show(report, plan, disk, clock)
    if report.differences:
        say(f"kept: {folder}" + (f" (mount -o loop {disk.image} {disk.folder})" if disk else ""))
    else:
        shutil.rmtree(folder)
    return 1 if report.differences else 0


def show(report: Report, plan: faults.Plan, disk: Disk | None, clock: Clock | None) -> None:
    print("\nkilled or stopped")
    for kind in (*processes.KINDS, "stop", "machine", "disk", "clock", "upgrade"):
        print(f"  {kind:22} {report.kills.get(kind, 0):4}")
    for title, numbers in (("acknowledged", report.acknowledged), ("compared", report.compared)):
        print(f"\n{title}")
        for name, number in sorted(numbers.items()):
            print(f"  {name:30} {number:6}")
    print("\nslowest recoveries")
    for seconds, what in report.recoveries[:5]:
        print(f"  {seconds:6.1f} s  {what}")
    there = set(processes.KINDS) - (processes.WITH_NETWORKS - report.kills.keys())
    few = [kind for kind in processes.KINDS if kind in there and report.kills.get(kind, 0) < plan.rounds]
    report.differences += [f"killed less than {plan.rounds} times: {', '.join(few)}"] if few else []
    for words in report.differences:
        print(f"DIFFERENCE {words}")
    left_out = [name for name, there in (("a full disk", disk), ("jumps of the clock", clock)) if there is None]
    less = f" (without {' and '.join(left_out)})" if left_out else ""
    print(f"\n{len(report.differences)} differences{less}" if report.differences else f"\nnothing differs{less}")


def say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
