"""Where AIOps keeps its files: {root}/aiops/. Used by the services, the trainings and reconcile."""

from __future__ import annotations

from pathlib import Path

from kernel import storage


def folder() -> Path:
    return storage.root() / "aiops"


def models() -> Path:
    """The versions of the model (opnilog.store.Versions)."""
    return folder() / "models"


def training(uuid) -> Path:
    """Lines, progress, output and log of one training."""
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
