"""The records of a run, which survive any crash. Used by the shim; standard library only."""

from __future__ import annotations

import json
import os

RECORD_SIZE = 4096


def write_record(path: str, record: dict, room: str = "") -> None:
    """Write a record, atomic and durable. `room` is a file of the record's size that was written in advance, so
    that a full disk does not prevent it.
    """
    draft = room or path + ".part"
    data = json.dumps(record).encode()
    data += b" " * (RECORD_SIZE - len(data) - 1) + b"\n"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(draft, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def private(path: str, flags: int) -> int:
    """Open a file that no other user may read; an `opener` for `open`."""
    return os.open(path, flags, 0o600)
