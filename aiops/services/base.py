"""What the services share: decoding of batches that may hold a wrong message, and JSON bodies."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

from aiops.wire import payloads, subjects, watchlist
from kernel import bus, sanitize

log = logging.getLogger(__name__)


def items_of(subject: str, messages: Sequence[bytes], decode: Callable[[bytes], list] = payloads.decode) -> list:
    """The items of all messages that are what the subject carries; others are logged with the subject and dropped."""
    found: list = []
    for message in messages:
        try:
            found += decode(message)
        except payloads.WireError as problem:
            log.warning("%s: a wrong payload of %s bytes is dropped: %s", subject, len(message), problem)
    return found


def one(message: bytes) -> list:
    """A message of a single Payload, for `items_of`."""
    return [payloads.decode_one(message)]


def read_json(data: bytes) -> dict:
    """A JSON object. Raises ValueError."""
    value = sanitize.read_json(data)
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def read_parameters(data: bytes) -> tuple[dict, str]:
    """`model_workload_parameters`: the workloads and what happened to them. Raises ValueError."""
    body = read_json(data)
    kind = body.get("status_type")
    if kind not in {subjects.STATUS_TRAIN, subjects.STATUS_UPDATE, subjects.STATUS_RESET}:
        raise ValueError(f"status_type: {kind!r} is none of train, update, reset")
    return watchlist.check(body.get("workloads") or {}), kind


def dump(value) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def lists(subject: str, items: Sequence, most: int = 1 << 30) -> list[tuple[str, bytes]]:
    """The items as messages, none larger than the server takes."""
    return [(subject, data) for data in payloads.batches(items, most)]


def json_lists(subject: str, rows: Sequence, limit: int | None = None) -> list[tuple[str, bytes]]:
    """The rows as messages of JSON lists, none larger than the server takes; a row that alone is larger is left out."""
    limit = limit or min(payloads.MAX_PAYLOAD, bus.max_payload()) - payloads.HEAD_ROOM
    found: list[bytes] = []
    batch: list[bytes] = []
    size = 2
    for row in map(dump, rows):
        if len(row) + 2 > limit:
            log.warning("%s: a row of %s bytes is too large and left out", subject, len(row))
            continue
        if size + len(row) + 1 > limit:
            found.append(b"[" + b",".join(batch) + b"]")
            batch, size = [], 2
        batch.append(row)
        size += len(row) + 1
    if batch:
        found.append(b"[" + b",".join(batch) + b"]")
    return [(subject, data) for data in found]
