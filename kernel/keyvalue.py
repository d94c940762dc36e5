"""JetStream key-value buckets for synchronous code: get, put, compare-and-swap, delete. Every call may raise bus.Fault.

A bucket is the stream that nats.go makes with its defaults (history 1, one replica, file), field for field: a Go
service that creates the same bucket afterwards finds its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from . import bus, sanitize
from .bus import (
    APIError,
    Client,
    DiscardPolicy,
    NoStreamResponseError,
    NotFoundError,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

TIMEOUT_S = 5
STREAM_MISSING = 10059
NAME_TAKEN = 10058
WRONG_REVISION = (10071, 10164)
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
OPERATION = "KV-Operation"


class Conflict(Exception):
    """Somebody else has written the key meanwhile."""


@dataclass(frozen=True)
class Entry:
    value: bytes
    revision: int


def ensure(buckets: Iterable[str]) -> None:
    """Makes the buckets that are missing; those that are there stay as they are."""

    async def work(client: Client) -> None:
        for bucket in buckets:
            await _make(client, bucket)

    bus.call(work, 2 * TIMEOUT_S)


def get(bucket: str, key: str) -> Entry | None:
    """The value and its revision; None when the key, or the whole bucket, is missing."""

    async def work(client: Client) -> Entry | None:
        found = await _last(client, bucket, key)
        return None if found is None or _deleted(found) else Entry(found.data or b"", found.seq)

    return bus.call(work, TIMEOUT_S)


def put(bucket: str, key: str, value: bytes) -> int:
    """Writes whatever is there; returns the new revision."""
    return bus.call(lambda client: _write(client, bucket, key, value, {}), TIMEOUT_S)


def update(bucket: str, key: str, value: bytes, revision: int) -> int:
    """Writes only over that revision (0: only when the key is missing). Raises Conflict."""

    async def work(client: Client) -> int:
        expected = revision
        if not expected:
            found = await _last(client, bucket, key)
            if found is not None and not _deleted(found):
                raise Conflict(f"{bucket}/{key}: is there already")
            expected = found.seq if found is not None else 0
        return await _write(client, bucket, key, value, {EXPECTED: str(expected)})

    return bus.call(work, TIMEOUT_S)


def delete(bucket: str, key: str) -> None:
    """Missing already is success."""

    async def work(client: Client) -> None:
        if await _last(client, bucket, key) is not None:
            await _write(client, bucket, key, b"", {OPERATION: "DEL"})

    bus.call(work, TIMEOUT_S)


def get_json(bucket: str, key: str) -> tuple[object, int]:
    """The decoded value and its revision, (None, 0) when it is missing. A value that is no JSON is (None, revision)."""
    entry = get(bucket, key)
    if entry is None:
        return None, 0
    try:
        return sanitize.read_json(entry.value), entry.revision
    except ValueError:
        return None, entry.revision


def put_json(bucket: str, key: str, value) -> int:
    return put(bucket, key, dump(value))


def change(bucket: str, key: str, decide: Callable[[object], object], tries: int = 20):
    """Compare-and-swap of a JSON value: `decide` gives the new value for the old one (None: missing), or None to leave
    it. Returns what was written, None when it was left. Raises Conflict when others were quicker every time.
    """
    for _ in range(tries):
        old, revision = get_json(bucket, key)
        new = decide(old)
        if new is None:
            return None
        try:
            update(bucket, key, dump(new), revision)
        except Conflict:
            continue
        return new
    raise Conflict(f"{bucket}/{key}: changed by others {tries} times in a row")


def dump(value) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


async def _last(client: Client, bucket: str, key: str):
    try:
        return await client.jetstream().get_msg(f"KV_{bucket}", subject=f"$KV.{bucket}.{key}", direct=False)
    except NotFoundError:  # no such stream, or no such message in it
        return None


def _deleted(message) -> bool:
    return (message.headers or {}).get(OPERATION) in {"DEL", "PURGE"}


async def _write(client: Client, bucket: str, key: str, value: bytes, headers: dict[str, str]) -> int:
    jetstream = client.jetstream()
    subject = f"$KV.{bucket}.{key}"
    try:
        return (await jetstream.publish(subject, value, headers=headers or None)).seq
    except NoStreamResponseError:  # the bucket is missing
        await _make(client, bucket)
        return (await jetstream.publish(subject, value, headers=headers or None)).seq
    except APIError as problem:
        if problem.err_code in WRONG_REVISION:
            raise Conflict(f"{bucket}/{key}: written by somebody else") from problem
        raise


async def _make(client: Client, bucket: str) -> None:
    jetstream = client.jetstream()
    try:
        await jetstream.stream_info(f"KV_{bucket}")
        return
    except NotFoundError:
        pass
    config = StreamConfig(
        name=f"KV_{bucket}",
        subjects=[f"$KV.{bucket}.>"],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_msgs_per_subject=1,
        max_msgs=-1,
        max_bytes=-1,
        max_consumers=-1,
        max_msg_size=-1,
        max_age=0,
        num_replicas=1,
        duplicate_window=120,
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
    )
    try:
        await jetstream.add_stream(config)
    except APIError as problem:
        if problem.err_code != NAME_TAKEN:  # made by another process just now
            raise
