"""The streams of the message bus in a backup: that of the metrics is of the database's moment, the others follow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jobs.metrics.recording import STREAM
from kernel import stream_copies

from .places import BackupError


def save(folder: Path, metrics_done: Callable[[], None]) -> dict[str, dict]:
    """Copy all streams to the folder; return stream -> its configuration and state. `metrics_done` is called once that
    of the metrics has been copied. Raises BackupError.
    """
    try:
        return stream_copies.save(folder, STREAM.name, metrics_done)
    except stream_copies.NotCopied as problem:
        raise BackupError(str(problem)) from problem


def load(folder: Path, told: dict[str, dict]) -> None:
    """Make the streams again. Raises BackupError."""
    try:
        stream_copies.load(folder, told)
    except stream_copies.NotCopied as problem:
        raise BackupError(str(problem)) from problem


def compare(told: dict[str, dict]) -> list[str]:
    """Return how the streams differ from those of the backup."""
    found, differences = stream_copies.states(), []
    for name, about in told.items():
        was = {key: about["state"][key] for key in stream_copies.COMPARED}
        if _have_expired(about) and found.get(name, {}).get("last_seq") == was["last_seq"]:
            continue
        if found.get(name) != was:
            differences.append(f"stream {name}: {was} -> {found.get(name, 'missing')}")
    return differences


def _have_expired(about: dict) -> bool:
    """Return whether messages of the backup are older by now than the stream keeps any."""
    kept = timedelta(microseconds=about["config"].get("max_age", 0) / 1000)
    first = datetime.fromisoformat(about["state"]["first_ts"].partition(".")[0].rstrip("Z") + "+00:00")
    return bool(kept) and datetime.now(UTC) - first > kept
