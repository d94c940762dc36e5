"""JetStream key-value buckets for synchronous code: get, put, compare-and-swap, delete. Every call may raise bus.Fault.

Keys are read and written by nats-py's own `KeyValue`. Values are read from the stream's leader (no direct get), so a
value that was written is read at once. Buckets are created here and not by nats-py, since a bucket must be the stream
that nats.go makes with its defaults (history 1, one replica, file), field for field: a Go service that creates the same
bucket afterwards accepts it. nats-py's `create_key_value` sets `allow_msg_ttl`, which nats.go does not.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError, NoStreamResponseError, NotFoundError
from nats.js.kv import KeyValue

from . import bus, sanitize

TIMEOUT_S = 5
NAME_TAKEN = 10058


class Conflict(Exception):
    """The key was written by another process in the meantime."""


@dataclass(frozen=True)
class StoredValue:
    value: bytes
    revision: int


def subject(bucket: str, key: str) -> str:
    """Return the subject of the messages that are the values of a key."""
    return f"$KV.{bucket}.{key}"


def ensure(buckets: Iterable[str]) -> None:
    """Create the buckets that are missing; existing ones stay as they are."""

    async def work(client: Client) -> None:
        for bucket in buckets:
            await _create(client, bucket)

    bus.call(work, 2 * TIMEOUT_S)


def get(bucket: str, key: str) -> StoredValue | None:
    """Return the value and its revision; None when the key, or the whole bucket, is missing."""

    async def work(client: Client) -> StoredValue | None:
        try:
            entry = await _bucket(client, bucket).get(key)
        except KeyNotFoundError:
            return None
        return StoredValue(entry.value or b"", entry.revision)

    return bus.call(work, TIMEOUT_S)


def put(bucket: str, key: str, value: bytes) -> int:
    """Write unconditionally and return the new revision."""
    return _write(bucket, lambda keys: keys.put(key, value))


def update(bucket: str, key: str, value: bytes, revision: int) -> int:
    """Write over that revision only (0: only when the key is missing) and return the new one. Raises Conflict."""

    async def write(keys: KeyValue) -> int:
        try:
            return await (keys.update(key, value, last=revision) if revision else keys.create(key, value))
        except (KeyWrongLastSequenceError, KeyNotFoundError) as problem:
            raise Conflict(f"{bucket}/{key}: written by another process") from problem

    return _write(bucket, write)


def delete(bucket: str, key: str) -> None:
    """Delete the key. A missing one is no error."""

    async def work(client: Client) -> None:
        keys = _bucket(client, bucket)
        try:
            await keys.get(key)
        except KeyNotFoundError:
            return
        await keys.delete(key)

    bus.call(work, TIMEOUT_S)


def get_json(bucket: str, key: str) -> tuple[object, int]:
    """Return the decoded value and its revision: (None, 0) for a missing key, (None, revision) for a value that is not
    JSON.
    """
    entry = get(bucket, key)
    if entry is None:
        return None, 0
    try:
        return sanitize.read_json(entry.value), entry.revision
    except ValueError:
        return None, entry.revision


def put_json(bucket: str, key: str, value) -> int:
    """Write a value as JSON and return the new revision."""
    return put(bucket, key, dump(value))


def change(bucket: str, key: str, decide: Callable[[object], object], tries: int = 20):
    """Change a JSON value by compare-and-swap and return what was written, None when it was left as it was.

    `decide` returns the new value for the old one (None: missing), or None to leave it. Raises Conflict when other
    writers were quicker every time.
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
    """Return a value as compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _bucket(client: Client, bucket: str) -> KeyValue:
    """Return the bucket without asking the server, as nats-py's `key_value` would before each call."""
    return KeyValue(bucket, f"KV_{bucket}", f"$KV.{bucket}.", client.jetstream(), direct=False)


def _write(bucket: str, write: Callable[[KeyValue], Awaitable[int]]) -> int:
    """Write and return the new revision; create the bucket first where it is missing."""

    async def work(client: Client) -> int:
        keys = _bucket(client, bucket)
        try:
            return await write(keys)
        except NoStreamResponseError:
            await _create(client, bucket)
            return await write(keys)

    return bus.call(work, TIMEOUT_S)


async def _create(client: Client, bucket: str) -> None:
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
