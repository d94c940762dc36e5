"""The GPUs of this machine and their assignment. Called by `local`, which assigns them, and by the inventory.

A GPU (or MIG slice) is identified by its UUID. The run that has it holds a lock on the file of that name: taken when
the run starts, released by the kernel when no process of the run is left, whatever was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pynvml

from . import gpu_types
from .errors import NoGpus, RunnerError


@dataclass(frozen=True)
class Device:
    """One assignable GPU. `minor` is the number of its device node, /dev/nvidia{minor}."""

    uuid: str
    name: str
    memory_mib: int
    minor: int


def devices() -> list[Device]:
    """Return the GPUs in the order of NVML, none without a driver. A partitioned GPU is listed as its MIG slices."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        result = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            minor = pynvml.nvmlDeviceGetMinorNumber(handle)
            result += [_device(part, minor) for part in _slices(handle)] or [_device(handle, minor)]
        return result
    finally:
        pynvml.nvmlShutdown()


def _slices(handle) -> list:
    try:
        if pynvml.nvmlDeviceGetMigMode(handle)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return []
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError:  # this model has no MIG
        return []
    slices = []
    for index in range(most):
        with contextlib.suppress(pynvml.NVMLError):
            slices.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
    return slices


def _device(handle, minor: int) -> Device:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20
    return Device(text(pynvml.nvmlDeviceGetUUID(handle)), text(pynvml.nvmlDeviceGetName(handle)), memory, minor)


def text(value: str | bytes) -> str:
    """Return a string of NVML, which older drivers give as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def nodes(taken: list[Device]) -> list[str]:
    """Return the device nodes that programs on these GPUs open, none without a GPU."""
    if not taken:
        return []
    shared = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
    caps = glob.glob("/dev/nvidia-caps/*") if any(device.uuid.startswith("MIG-") for device in taken) else []
    return [*(f"/dev/nvidia{minor}" for minor in sorted({device.minor for device in taken})), *shared, *caps]


def products(installed: list[Device]) -> Counter[str]:
    """Return how many GPUs there are of each product (`gpu_types`)."""
    return Counter(gpu_types.product_of(device.name) for device in installed)


def candidates(installed: list[Device], kind: str, named: gpu_types.Named) -> list[Device]:
    """Return the GPUs of that type. Without a type all of them, first those of which there are most: a run that takes
    any GPU leaves the rare ones to those that name them.
    """
    count = products(installed)
    of_kind = gpu_types.meant(kind, count, named)
    chosen = [device for device in installed if gpu_types.product_of(device.name) in of_kind]
    return chosen if kind else sorted(chosen, key=lambda device: -count[gpu_types.product_of(device.name)])


def refuse(kind: str, wanted: int, free: int) -> NoReturn:
    """Raise RunnerError for a run that finds too few free GPUs, NoGpus where it has named their type."""
    if kind:
        raise NoGpus(
            "needs %(wanted)s × %(type)s, %(free)s free on this machine now", wanted=wanted, type=kind, free=free
        )
    raise RunnerError("gpu: %(wanted)s wanted, %(free)s free on this machine now", wanted=wanted, free=free)


@contextlib.contextmanager
def acquire(folder: Path, candidates: list[Device], count: int):
    """Lock `count` free GPUs and yield them as (device, open lock) pairs; fewer pairs when not so many are free.

    The run inherits the locks; those of the caller are closed at the end of the block.
    """
    taken: list[tuple[Device, int]] = []
    try:
        for device in candidates:
            if len(taken) == count:
                break
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            name = re.sub(r"[^A-Za-z0-9_-]", "_", device.uuid)
            fd = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
            else:
                taken.append((device, fd))
        yield taken
    finally:
        for _, fd in taken:
            os.close(fd)
