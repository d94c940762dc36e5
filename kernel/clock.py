"""Whether the clock can be believed where something is deleted because it is old.

A clock that jumps ahead (a correction of NTP that goes wrong, a virtual machine that is restored, a dead battery) makes
everything old at once: the trash, logs, metrics, outputs. So `manage.py reconcile` compares it in each round with the
time since the machine's start, which nobody sets, and after a restart of the machine with the time of the last round.
By how much it has jumped is `ahead`, and what deletes by age goes by `settled`, the time without it, until the clock is
set back, an administrator confirms the time (`manage.py clock --confirm`), or a day has passed.

What was seen is kept in `{root}/run/clock.json`, which the other parts read.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from . import storage
from .messages import Message

log = logging.getLogger(__name__)

LONG_S = 3600.0  # of a jump while the machine runs
OFF_S = 86_400.0  # of a machine that was off: it is believed to have been off for so long
DOUBTED_S = 86_400.0
NOTED_S = 30.0  # how often the file is written while nothing happens
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Seen:
    """The clocks of one round: the start of the machine that they belong to, the wall clock and the seconds since that
    start; by how much the wall clock is ahead, and for how long that has been known.
    """

    boot: str
    wall: float
    steady: float
    ahead: float = 0.0
    doubted: float = 0.0


def check(wall: float | None = None, steady: float | None = None, boot: str | None = None) -> None:
    """Compare the clock with that of the last round. Called by reconcile at the begin of each."""
    wall = time.time() if wall is None else wall
    steady = time.clock_gettime(time.CLOCK_BOOTTIME) if steady is None else steady
    now, last = Seen(_boot() if boot is None else boot, wall, steady), _read()
    if last is None:
        return _write(now)
    passed = steady - last.steady if now.boot == last.boot else 0.0
    jump, long_s = wall - last.wall - passed, LONG_S if now.boot == last.boot else OFF_S
    ahead, doubted = last.ahead, last.doubted + passed
    if jump > long_s:
        ahead, doubted = ahead + jump, 0.0
        log.error("the clock has jumped ahead by %.0f s: nothing is deleted for its age by that", jump)
    elif jump < -LONG_S:
        ahead = max(0.0, ahead + jump)
    if ahead and (doubted > DOUBTED_S or ahead < LONG_S):
        log.warning("the clock is believed again")
        ahead = 0.0
    if jump > long_s or ahead != last.ahead or now.boot != last.boot or not 0 <= passed < NOTED_S:
        _write(replace(now, ahead=ahead, doubted=doubted if ahead else 0.0))


def ahead_s() -> float:
    """Return by how many seconds the clock is ahead of what is believed; 0 for a clock that is."""
    last = _read()
    return last.ahead if last is not None else 0.0


def settled(now: datetime) -> datetime:
    """Return the time by which what is old is deleted."""
    return now - timedelta(seconds=ahead_s())


def settled_days(days: int) -> int:
    """Return the days after which something is deleted by a clock of which only the date is asked."""
    return days + math.ceil(ahead_s() / 86_400)


def confirm() -> float:
    """Take the clock as it is; return by how many seconds it was ahead."""
    last = _read()
    if last is None or not last.ahead:
        return 0.0
    _write(replace(last, ahead=0.0, doubted=0.0))
    return last.ahead


def warning() -> Message | None:
    """Return what administrators are shown while the clock is doubted."""
    hours = round(ahead_s() / 3600)
    if not hours:
        return None
    return Message(
        "The clock has jumped ahead by %(hours)s hours. Nothing is deleted for its age by that, for a day at most. "
        "Set the clock, or confirm it with: %(command)s", hours=hours, command="manage.py clock --confirm",
    )  # fmt: skip


def _file() -> Path:
    return storage.root() / "run" / "clock.json"


def _boot() -> str:
    with contextlib.suppress(OSError):
        return BOOT.read_text().strip()
    return ""


def _read() -> Seen | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Seen(**json.loads(_file().read_bytes()))
    return None


def _write(seen: Seen) -> None:
    with contextlib.suppress(OSError):  # a full disk: the next round tries again
        storage.write_atomic(_file(), json.dumps(asdict(seen)).encode())
