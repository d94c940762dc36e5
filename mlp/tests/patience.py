"""How long a test waits for an event. The limit only ends a broken run: no test asks how fast the machine is."""

from __future__ import annotations

import time

import runners

LIMIT_S = 300


def rest(limit_s: float = 0.5) -> None:
    """Wait until a run ends, at most for the time after which the platform would look again: looking all the time
    would take the processor from the run that is waited for.
    """
    runner, end, pause = runners.get(), time.monotonic() + limit_s, 0.005
    time.sleep(0.02)
    running = [name for name in runner.names() if runner.poll(name).state == "running"]
    while running and all(runner.poll(name).state == "running" for name in running) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(1.3 * pause, 0.05)
