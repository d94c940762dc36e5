"""The streams of the message bus in a backup: that of the metrics is of the database's moment, the others follow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings

from aiops.wire.subjects import BUCKETS
from kernel import stream_copies
from tracking.metrics.recording import STREAM

from .places import BackupError


def known() -> set[str] | None:
    """Return the names of the platform's streams; None where the server is its own: all are."""
    return None if settings.EMBEDDED["nats"] else {STREAM.name, *(f"KV_{bucket}" for bucket in BUCKETS)}


def save(folder: Path, metrics_done: Callable[[], None]) -> dict[str, dict]:
    """Copy the platform's streams to the folder; return stream -> its configuration and state. `metrics_done` is called
    once that of the metrics has been copied. Raises BackupError.

    On a server of others', which may have their streams, too, only those that the platform knows are its own.
    """
    try:
        return stream_copies.save(folder, STREAM.name, metrics_done, known())
    except stream_copies.NotCopied as problem:
        raise BackupError(str(problem)) from problem


def need_none(saved: dict[str, dict]) -> None:
    """Raise BackupError when the server has messages in one of these streams."""
    try:
        states = stream_copies.states()
    except stream_copies.NotCopied as problem:
        raise BackupError(str(problem)) from problem
    for name in saved:
        if states.get(name, {}).get("messages"):
            raise BackupError(f"the server of NATS_URL has messages in the stream {name}: delete it, or name another")


def load(folder: Path, saved: dict[str, dict]) -> None:
    """Make the streams again. Raises BackupError."""
    try:
        stream_copies.load(folder, saved)
    except stream_copies.NotCopied as problem:
        raise BackupError(str(problem)) from problem


def compare(saved: dict[str, dict]) -> list[str]:
    """Return how the streams differ from those of the backup."""
    states, differences = stream_copies.states(), []
    for name, about in saved.items():
        was = {key: about["state"][key] for key in stream_copies.COMPARED}
        if _have_expired(about) and states.get(name, {}).get("last_seq") == was["last_seq"]:
            continue
        if states.get(name) != was:
            differences.append(f"stream {name}: {was} -> {states.get(name, 'missing')}")
    return differences


def _have_expired(about: dict) -> bool:
    """Return whether messages of the backup are older by now than the stream keeps any."""
    kept = timedelta(microseconds=about["config"].get("max_age", 0) / 1000)
    first = datetime.fromisoformat(about["state"]["first_ts"].partition(".")[0].rstrip("Z") + "+00:00")
    return bool(kept) and datetime.now(UTC) - first > kept
