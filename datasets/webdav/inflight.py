"""Uploads in flight: what they will store is reserved, and hours of one large file count as activity of its dataset.

nginx calls the application when a body begins and when it is complete, not in between, and closes a connection on which
nothing has come for two minutes. So each upload that nginx asks about is recorded in Valkey with its connection and its
length. It counts as long as that connection is open, however slow it is: a process that is killed leaves nothing
reserved. Whoever comes later sees what the earlier ones will store, since Valkey records and lists in one step.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone
from redis.exceptions import RedisError

from kernel import storage
from kernel.broker import broker

from ..models import Dataset, State

KEY = "mlp:uploads"
WORTH_NOTING = 100_000  # smaller bodies are not asked about (data.conf.tmpl); put.batch looks whether the disk has room
BLIND_S = 3600.0  # seconds that an upload counts as alive where the system does not list connections
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED = "01"


class InFlight(NamedTuple):
    """What an upload will store: where it counts, its path, how many bytes, and since when."""

    places: list[str]
    path: str
    size: int
    began: float


class Others:
    """The uploads that were in flight before one that begins. Both answers are as of now: ask after looking at what is
    stored, so that one that ends meanwhile is missed rather than counted twice.
    """

    def __init__(self, records: dict[bytes, bytes]):
        self._records = records

    def at(self, place: str, path: str = "") -> int:
        """Return what they will store there, but at that path, which is replaced."""
        if not any(place in upload.places for upload in _read(self._records).values()):
            return 0
        return sum(
            upload.size for upload in self._now() if place in upload.places and (not path or upload.path != path)
        )

    def coming(self) -> int:
        """Return how many of their bytes are not on the disk yet."""
        size = sum(upload.size for upload in self._now())
        return max(0, size - _spooled()) if size else 0

    def _now(self) -> list[InFlight]:
        if not self._records:
            return []
        try:
            records = broker().client.hmget(KEY, list(self._records))
        except RedisError:
            return []
        same = {peer: now for (peer, then), now in zip(self._records.items(), records, strict=True) if then == now}
        return list(_read(same).values())


NONE = Others({})


def begin(peer: str, places: list[str], path: str, size: int) -> Others:
    """Record an upload of `size` bytes to a path, which counts in these places, and return the others. `peer` is the
    connection, `{address}:{port}>{our port}`; a dataset's place is `{user}/{dataset}`.
    """
    if not peer:
        return NONE
    try:
        steps = broker().client.pipeline(transaction=True)
        steps.hset(KEY, peer, json.dumps([places, path, size, time.time()]))
        steps.hgetall(KEY)
        records = steps.execute()[1]
    except RedisError:
        return NONE
    records.pop(peer.encode(), None)
    return Others(_alive(records))


def _read(records: dict[bytes, bytes]) -> dict[bytes, InFlight]:
    """Return the uploads; without what an earlier release has written."""
    uploads = {}
    for peer, record in records.items():
        with contextlib.suppress(ValueError, TypeError):
            uploads[peer] = InFlight(*json.loads(record))
    return uploads


def _alive(records: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the records of open connections, and forget the others."""
    uploads, connected = _read(records), connections() if records else None
    alive = {}
    for peer, record in records.items():
        if peer in uploads and (
            peer.decode() in connected if connected is not None else time.time() - uploads[peer].began < BLIND_S
        ):
            alive[peer] = record
        else:
            end(peer.decode())
    return alive


def _spooled() -> int:
    """Return the bytes of the bodies that are arriving."""
    size = 0
    for entry in os.scandir(storage.spool_dir()):
        if not entry.name.startswith("trash-"):
            with contextlib.suppress(FileNotFoundError):
                info = entry.stat(follow_symlinks=False)
                size += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return size


def end(peer: str) -> None:
    """Forget the upload on this connection: its body is complete, or refused."""
    if peer:
        with contextlib.suppress(RedisError):
            broker().client.hdel(KEY, peer)


def keep_alive() -> None:
    """Renew the time-out of the datasets with uploads in flight. Called by the reconcile loop in each round."""
    try:
        records = broker().client.hgetall(KEY)
    except RedisError:
        return
    alive = {place for upload in _read(_alive(records)).values() for place in upload.places}
    if not alive:
        return
    stale = timezone.now() - timedelta(seconds=min(20.0, settings.DATASET_SILENCE_S / 4))
    waiting = Dataset.objects.filter(state=State.CREATING, touched__lt=stale).values_list(
        "pk", "user__username", "name"
    )
    keys = [pk for pk, user, name in waiting if f"{user}/{name}" in alive]
    Dataset.objects.filter(pk__in=keys, state=State.CREATING, touched__lt=stale).update(touched=timezone.now())


def connections() -> set[str] | None:
    """Return this machine's TCP connections as `{remote address}:{remote port}>{local port}`; None if not listed.

    A client uses one port for connections to several servers, so the remote end alone does not tell them apart.
    """
    peers = set()
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, *_ = line.split()
            if state == ESTABLISHED:
                peers.add(f"{_address(remote)}>{int(local.rpartition(':')[2], 16)}")
    return peers or None


def _address(written: str) -> str:
    """Convert the kernel's `0100007F:7531` (words in the machine's byte order) to nginx's `{address}:{port}`."""
    address, _, port = written.partition(":")
    raw = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
    text = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return f"{text.removeprefix('::ffff:')}:{int(port, 16)}"
