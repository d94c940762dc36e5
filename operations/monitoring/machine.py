"""The machine: disk, GPUs, the age of the last backup, certificates; and the platform's version."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from functools import cache

import pynvml
from django.conf import settings
from prometheus_client import Metric

from runners import gpus
from supervision import tls

from .families import gauge

KEEP_S = 5.0  # asking the driver takes milliseconds
_gpus: tuple[float, list[Metric]] = (float("-inf"), [])


def collect() -> Iterator[Metric]:
    """Yield the metrics."""
    yield gauge("mlp_build_info", "The version that runs; always 1.", ("version",), [((_version(),), 1)])
    disk = shutil.disk_usage(settings.MLP_ROOT)
    yield gauge("mlp_disk_size_bytes", "Size of the disk with the storage root.", (), [((), disk.total)])
    yield gauge("mlp_disk_free_bytes", "Free space of that disk.", (), [((), disk.free)])
    reserve = settings.DISK_RESERVE_MIB << 20
    yield gauge("mlp_disk_reserve_bytes", "Free space below which no run starts.", (), [((), reserve)])
    yield from _backup()
    yield from _certificate()
    yield from _devices()


@cache
def _version() -> str:
    """Return the version of the installed package; "unknown" in a checkout."""
    try:
        return importlib.metadata.version("mlp-platform")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _backup() -> Iterator[Metric]:
    """Yield when the last backup was completed, from the note that it leaves; nothing before the first one."""
    try:
        note = json.loads((settings.MLP_ROOT / "run" / "backup.json").read_text())
        at, size = datetime.fromisoformat(note["completed"]).timestamp(), note.get("bytes")
    except (OSError, ValueError, KeyError, TypeError):
        return
    yield gauge("mlp_backup_last_success_timestamp_seconds", "When the last backup was completed.", (), [((), at)])
    if isinstance(size, int):
        yield gauge("mlp_backup_last_size_bytes", "Size of the last backup.", (), [((), size)])


def _certificate() -> Iterator[Metric]:
    """Yield when the gateways' certificate expires, and whether its files can be used; nothing without TLS."""
    served = tls.served()
    if served is None:
        return
    ends, usable = served.ends.timestamp(), not tls.problem()
    yield gauge(
        "mlp_tls_certificate_expiry_timestamp_seconds", "When the served certificate expires.", (), [((), ends)]
    )
    yield gauge("mlp_tls_certificate_usable", "Whether MLP_TLS_CERT and MLP_TLS_KEY can be used.", (), [((), usable)])


# --- GPUs ------------------------------------------------------------------------------------------------------------
FIGURES = (
    ("mlp_gpu_utilization_ratio", "Share of the last moments in which the GPU computed.",
     lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
    ("mlp_gpu_memory_used_bytes", "Memory of the GPU that is in use.",
     lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle).used),
    ("mlp_gpu_memory_size_bytes", "Memory of the GPU.",
     lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle).total),
    ("mlp_gpu_temperature_celsius", "Temperature of the GPU.",
     lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
    ("mlp_gpu_power_watts", "Power that the GPU draws.",
     lambda handle: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
)  # fmt: skip


def _devices() -> list[Metric]:
    """Return the figures of the GPUs, at most KEEP_S old; none without a driver."""
    global _gpus
    if time.monotonic() - _gpus[0] > KEEP_S:
        _gpus = time.monotonic(), _measured()
    return _gpus[1]


def _measured() -> list[Metric]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = [
            (index, gpus.text(pynvml.nvmlDeviceGetUUID(handle)), gpus.text(pynvml.nvmlDeviceGetName(handle)))
            for index, handle in enumerate(handles)
        ]
        metrics = []
        for name, help, figure in FIGURES:
            rows = []
            for labels, handle in zip(names, handles, strict=True):
                try:
                    rows.append((labels, figure(handle)))
                except pynvml.NVMLError:  # this model does not measure it
                    continue
            metrics.append(gauge(name, help, ("gpu", "uuid", "model"), rows))
        return metrics
    finally:
        pynvml.nvmlShutdown()
