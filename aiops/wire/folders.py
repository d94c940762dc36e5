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


def drain_file(model: int = 0) -> Path:
    """Return the file of DRAIN's templates and verdicts: of the platform's model (0), or of a tenant's."""
    return folder() / "drain" / (f"tenant-{model}.bin" if model else "workload.bin")


def drain_files() -> dict[int, Path]:
    """Return the files of the tenants' models that are there."""
    names = {path: path.stem.removeprefix("tenant-") for path in (folder() / "drain").glob("tenant-*.bin")}
    return {int(number): path for path, number in names.items() if number.isdecimal()}


def read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def write(path: Path, data: bytes) -> None:
    storage.write_atomic(path, data)
