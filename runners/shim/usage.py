"""What a run uses, looked at while it runs: CPU, memory, disk and GPUs. A thread of the shim; standard library only.

One JSON object a line. The looks get rarer as the run gets older, so that a file stays below about a megabyte however
long the run takes, and its beginning is as fine as its end in proportion.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import threading
import time
from collections.abc import Callable

import limits

FIRST_S = 0.5
LOOKS = 600  # in the time that the run has had so far
MOST_PIDS = 64  # of more processes shared memory is counted for each: to tell them apart costs too much
MIB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
NVML = "libnvidia-ml.so.1"


class Usage(threading.Thread):
    """Writes to the open file `fd` until the process ends. `pids` gives the processes of the run, `disk` the bytes that
    it has written so far or None where nobody measures them.
    """

    def __init__(self, fd: int, devices: list[str], pids: Callable[[], list[int]], disk: Callable[[], int | None]):
        super().__init__(daemon=True)
        self.fd, self.pids, self.disk = fd, pids, disk
        self.devices, self.begun = devices, time.monotonic()
        self.before = (self.begun, 0.0)  # when it was looked at last, and the CPU seconds up to then

    def run(self) -> None:
        cards = Cards(self.devices)
        pause = FIRST_S
        while True:
            time.sleep(pause)
            self.look(cards)
            pause = max(1.0, (time.monotonic() - self.begun) / LOOKS)

    def look(self, cards: Cards) -> None:
        pids = self.pids()
        used = sum(map(cpu_seconds, pids))
        now, (then, earlier) = time.monotonic(), self.before
        self.before = now, max(used, earlier)  # what has ended between two looks may be missed, and is never negative
        row = {
            "after": round(now - self.begun, 1),
            "cpu": round(max(0.0, used - earlier) / max(now - then, 0.001), 3),
            "ram": sum(map(share if len(pids) <= MOST_PIDS else resident, pids)) // MIB,
        }
        if (disk := self.disk()) is not None:
            row["disk"] = max(0, disk) // MIB
        row |= cards.look()
        with contextlib.suppress(OSError):  # the disk is full: a point is missing
            os.write(self.fd, json.dumps(row).encode() + b"\n")


def cpu_seconds(pid: int) -> float:
    """Of a process and of those below it that it has seen the end of."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return sum(map(int, limits.stat_of(pid)[11:15])) / TICKS
    return 0.0


def share(pid: int) -> int:
    """Bytes of memory, what it shares with others counted in parts where the kernel tells that."""
    return limits.share_of(pid) or resident(pid)


def resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    return 0


class Cards:
    """The run's GPUs, asked by way of NVML: `gpu` in per cent of all of them together, `gpu_ram` in MiB. Nothing where
    the run has none or the library is not there. Source: https://docs.nvidia.com/deploy/nvml-api/
    """

    def __init__(self, devices: list[str]):
        self.handles: list[ctypes.c_void_p] = []
        if not devices:
            return
        with contextlib.suppress(OSError, AttributeError):
            self.nvml = ctypes.CDLL(NVML)
            if self.nvml.nvmlInit_v2() == 0:
                for uuid in devices:
                    handle = ctypes.c_void_p()
                    if self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) == 0:
                        self.handles.append(handle)

    def look(self) -> dict[str, int]:
        busy, memory = [], []
        for handle in self.handles:
            rates, room = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()
            if self.nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == 0:  # a slice has none
                busy.append(rates[0])
            if self.nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(room)) == 0:
                memory.append(room[2])
        found = {"gpu": round(sum(busy) / len(busy))} if busy else {}
        return found | ({"gpu_ram": sum(memory) // MIB} if memory else {})
