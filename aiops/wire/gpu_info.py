"""The GPUs that exist: by NVML on this machine, by the nodes' resources on a cluster. Used by REST and services."""

from __future__ import annotations

import logging
import threading
import time

import runners
from kernel.errors import Fault
from resources import inventory

log = logging.getLogger(__name__)

KEEP_S = 10.0
RESOURCE = "nvidia.com/gpu"
_lock = threading.Lock()
_kept: tuple[float, list[dict]] = (float("-inf"), [])


def local_count() -> int:
    """Return the number of GPUs of this machine."""
    return inventory.gpus()


def info() -> list[dict]:
    """Return [{"name", "capacity", "allocatable"}], one for each node and resource; empty without a GPU. Cached for 10
    s.
    """
    global _kept
    with _lock:
        if time.monotonic() - _kept[0] > KEEP_S:
            try:
                _kept = (time.monotonic(), _ask())
            except runners.RunnerError as problem:
                log.warning("the GPUs cannot be queried now: %s", problem)
                if _kept[0] == float("-inf"):
                    raise Fault("the cluster does not answer; try again later") from problem
        return list(_kept[1])


def has_gpus() -> bool:
    return any(int(item["allocatable"]) > 0 for item in info() if item["allocatable"].isdecimal())


def _ask() -> list[dict]:
    nodes = getattr(runners.get(), "gpu_info", None)
    if nodes is not None:
        return [{name: str(item[name]) for name in ("name", "capacity", "allocatable")} for item in nodes()]
    count = local_count()
    return [{"name": RESOURCE, "capacity": str(count), "allocatable": str(count)}] if count else []
