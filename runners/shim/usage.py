"""The resource usage of a run over time: CPU, memory, disk and GPUs. A thread of the shim; standard library only.

One JSON object a line. The interval grows with the age of the run, so that a file stays below about a megabyte.
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
LOOKS = 600  # samples, whatever the age of the run
MAX_PIDS = 64  # with more processes shared memory is counted for each of them, since sharing costs too much to measure
MIB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
NVML = "libnvidia-ml.so.1"


class Usage(threading.Thread):
    """Writes samples to open files until the process ends. `pids()` returns the processes of the run, `disk()` the
    bytes that it has written so far, None where they are not measured.
    """

    def __init__(self, files: list[int], devices: list[str], pids: Callable[[], list[int]], disk: Callable):
        super().__init__(daemon=True)
        self.files, self.pids, self.disk = files, pids, disk
        self.devices, self.begun = devices, time.monotonic()
        self.before = (self.begun, 0.0)  # the time of the last sample, and the CPU seconds then

    def run(self) -> None:
        """Sample for ever; the thread ends with the process."""
        cards = Cards(self.devices)
        pause = FIRST_S
        while True:
            time.sleep(pause)
            self.poll(cards)
            pause = max(1.0, (time.monotonic() - self.begun) / LOOKS)

    def poll(self, cards: Cards) -> None:
        """Write one sample."""
        pids = self.pids()
        used = sum(map(cpu_seconds, pids))
        now, (then, earlier) = time.monotonic(), self.before
        self.before = now, max(used, earlier)  # processes that ended meanwhile are missed; never negative
        row = {
            "after": round(now - self.begun, 1),
            "cpu": round(max(0.0, used - earlier) / max(now - then, 0.001), 3),
            "ram": sum(map(share if len(pids) <= MAX_PIDS else resident, pids)) // MIB,
        }
        if (disk := self.disk()) is not None:
            row["disk"] = max(0, disk) // MIB
        row |= cards.poll()
        for fd in self.files:
            with contextlib.suppress(OSError):  # the disk is full: this sample is lost
                os.write(fd, json.dumps(row).encode() + b"\n")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that it has reaped."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return sum(map(int, limits.stat_of(pid)[11:15])) / TICKS
    return 0.0


def share(pid: int) -> int:
    """Return the bytes of memory, shared memory counted proportionally where the kernel reports that."""
    return limits.share_of(pid)[0] or resident(pid)


def resident(pid: int) -> int:
    """Return the resident memory in bytes."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    return 0


class Cards:
    """The run's GPUs, measured through NVML: `gpu` in per cent of all of them, `gpu_ram` in MiB. Neither where the run
    has no GPU or the library is missing. Source: https://docs.nvidia.com/deploy/nvml-api/
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

    def poll(self) -> dict[str, int]:
        """Return the fields for a sample."""
        busy, memory = [], []
        for handle in self.handles:
            rates, room = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()
            if self.nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == 0:  # a MIG slice has none
                busy.append(rates[0])
            if self.nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(room)) == 0:
                memory.append(room[2])
        fields = {"gpu": round(sum(busy) / len(busy))} if busy else {}
        return fields | ({"gpu_ram": sum(memory) // MIB} if memory else {})
