"""Shared by the services: decoding of batches that may contain wrong messages, and JSON bodies."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

from aiops.wire import payloads, subjects, watchlist
from kernel import bus, sanitize

log = logging.getLogger(__name__)


def items_of(subject: str, messages: Sequence[bytes], decode: Callable[[bytes], list] = payloads.decode) -> list:
    """Return the items of all valid messages; others are logged with the subject and dropped."""
    items: list = []
    for message in messages:
        try:
            items += decode(message)
        except payloads.WireError as problem:
            log.warning("%s: a wrong payload of %s bytes is dropped: %s", subject, len(message), problem)
    return items


def one(message: bytes) -> list:
    """Return a message of a single Payload as a list, for `items_of`."""
    return [payloads.decode_one(message)]


def read_json(data: bytes) -> dict:
    """Return a JSON object. Raises ValueError."""
    value = sanitize.read_json(data)
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def read_parameters(data: bytes) -> tuple[dict, str]:
    """Return the workloads of `model_workload_parameters` and what happened to them. Raises ValueError."""
    body = read_json(data)
    kind = body.get("status_type")
    if kind not in {subjects.STATUS_TRAIN, subjects.STATUS_UPDATE, subjects.STATUS_RESET}:
        raise ValueError(f"status_type: {kind!r} is none of train, update, reset")
    return watchlist.check(body.get("workloads") or {}), kind


def explanation(item, unexpected: Sequence) -> dict:
    """Return the row of EXPLANATIONS for a line: what was not expected in it, as (position, word) or, of an unusual
    value, (position, value, usual ones).
    """
    names = {"cluster_id": item.cluster_id, "namespace_name": item.namespace_name}
    words = [list(entry) for entry in unexpected]
    version = {"version": item.model_version} if item.model_version else {}
    return {"_id": item._id, **names, "masked_log": item.masked_log, "unexpected": words, **version}


def read_explanations(data: bytes) -> list[dict]:
    """Return the rows of a message of EXPLANATIONS; of a wrong one those before the fault, which is logged."""
    rows: list[dict] = []
    try:
        for row in sanitize.read_json(data):
            words = [[int(position), *map(str, said[:2])] for position, *said in row["unexpected"] if said]
            names = {name: str(row[name]) for name in ("_id", "cluster_id", "namespace_name")}
            more = {name: str(row.get(name, "")) for name in ("masked_log", "version")}
            rows.append({**names, **more, "unexpected": words})
    except (ValueError, TypeError, KeyError) as problem:
        log.warning("%s: a wrong payload is dropped: %s", subjects.EXPLANATIONS, problem)
    return rows


def read_questions(data: bytes) -> list[tuple[str, str, str, list[str], list[int]]]:
    """Return what KNOWN_VERDICTS asks: the names of each workload, its texts, and the lines of each. Raises
    ValueError.
    """
    rows = []
    try:
        for *names, texts, lines in sanitize.read_json(data):
            cluster, namespace, deployment = map(str, names)
            counts = [max(1, int(count)) for count in lines]
            if len(texts) != len(counts):
                raise ValueError("as many texts as numbers of lines")
            rows.append((cluster, namespace, deployment, list(map(str, texts)), counts))
    except TypeError as problem:
        raise ValueError(str(problem)) from None
    return rows


def dump(value) -> bytes:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def lists(subject: str, items: Sequence, most: int = 1 << 30) -> list[tuple[str, bytes]]:
    """Return the items as messages, none larger than the server allows."""
    return [(subject, data) for data in payloads.batches(items, most)]


def json_lists(subject: str, rows: Sequence, limit: int | None = None) -> list[tuple[str, bytes]]:
    """Return the rows as JSON lists, none larger than the server allows; a row that is larger by itself is left out."""
    limit = limit or min(payloads.MAX_PAYLOAD, bus.max_payload()) - payloads.HEAD_ROOM
    messages: list[bytes] = []
    batch: list[bytes] = []
    size = 2
    for row in map(dump, rows):
        if len(row) + 2 > limit:
            log.warning("%s: a row of %s bytes is too large and left out", subject, len(row))
            continue
        if size + len(row) + 1 > limit:
            messages.append(b"[" + b",".join(batch) + b"]")
            batch, size = [], 2
        batch.append(row)
        size += len(row) + 1
    if batch:
        messages.append(b"[" + b",".join(batch) + b"]")
    return [(subject, data) for data in messages]
