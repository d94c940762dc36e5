"""Runs of jobs, trainings, model checks and applications, apart from the servers. Used by actors and reconcile loops.

`get()` returns the runner that the setting MLP_RUNNER names. The interface is in `base`, each runner in a module of its
own; none of them knows the database, users or states. How a row of the database owns a run is in `owned`.
"""

from __future__ import annotations

import importlib
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from . import confine, interpreter, networks
from .base import NETWORK_WORDS, STOPPED, Mount, Runner, RunSpec, RunStatus, log_of_worker, narrowest
from .errors import NoGpus, RunnerError
from .local import LocalRunner, tail

__all__ = [
    "NETWORKS",
    "NETWORK_WORDS",
    "STOPPED",
    "Mount",
    "Network",
    "NoGpus",
    "RunSpec",
    "RunStatus",
    "Runner",
    "RunnerError",
    "get",
    "log_of_worker",
    "narrowest",
    "tail",
]


_making = threading.Lock()


@cache
def _runner(kind: str, root: Path, python: str) -> Runner:
    if kind == "local":
        interpreter.of(python).require_usable()
        decided = confine.decide(settings.MLP_CONFINEMENT, python)
        return LocalRunner(
            root / "run" / "runs",
            replace(networks.chosen(decided), shm=settings.LANDLOCK_SHM),
            disk_mib=settings.JOB_DISK_MIB,
            reserve_mib=settings.DISK_RESERVE_MIB,
            endpoints=networks.endpoints(),
            gpu_types=settings.GPU_TYPES,
        )
    if kind == "kubernetes":
        # Imported here, so that only platforms with a cluster load its client.
        cluster = importlib.import_module("runners.kubernetes")
        return cluster.KubernetesRunner(cluster.from_settings())
    raise ImproperlyConfigured(f"MLP_RUNNER must be 'local' or 'kubernetes', not {kind!r}")


def get() -> Runner:
    """Return the runner of this platform; one object for the same settings, for all threads."""
    with _making:
        return _runner(settings.MLP_RUNNER, Path(settings.MLP_ROOT), settings.RUN_PYTHON)
