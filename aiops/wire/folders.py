"""The folders of AIOps: {root}/aiops/. Used by the services, the trainings and reconcile."""

from __future__ import annotations

from pathlib import Path

from kernel import storage


def folder() -> Path:
    return storage.root() / "aiops"


def models() -> Path:
    """Return the folder of the model's versions (opnilog.store.Versions)."""
    return folder() / "models"


def training(uuid) -> Path:
    """Return the folder of a training: lines, progress, output and log."""
    return folder() / "trainings" / str(uuid)


def drain_file() -> Path:
    return folder() / "drain" / "workload.bin"


def read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def write(path: Path, data: bytes) -> None:
    storage.write_atomic(path, data)
