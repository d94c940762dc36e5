"""Uploads in flight, so that hours of one large file count as activity of its dataset (contract 3).

nginx calls the application when a body begins and when it is complete, not in between, and closes a connection on which
nothing has come for two minutes. So each upload that nginx asks about is recorded in Valkey with its connection, and as
long as that connection is open, however slow it is, the dataset is kept alive.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.utils import timezone
from redis.exceptions import RedisError

from kernel.broker import broker

from ..models import Dataset, State

KEY = "mlp:uploads"
WORTH_NOTING = 100_000  # smaller bodies are not asked about (data.conf.tmpl); put.batch looks whether the disk has room
BLIND_S = 3600.0  # seconds that an upload counts as alive where the system does not list connections
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED = "01"


def begin(peer: str, pk: int, length: int | None) -> None:
    """Record an admitted upload into the dataset; `peer` is the client's `{address}:{port}`."""
    if peer and (length is None or length >= WORTH_NOTING):
        with contextlib.suppress(RedisError):
            broker().client.hset(KEY, peer, json.dumps([pk, time.time()]))


def end(peer: str) -> None:
    """Forget the upload on this connection: its body is complete."""
    if peer:
        with contextlib.suppress(RedisError):
            broker().client.hdel(KEY, peer)


def keep_alive() -> None:
    """Renew the time-out of the datasets with uploads in flight. Called by the reconcile loop in each round."""
    try:
        records = broker().client.hgetall(KEY)
    except RedisError:
        return
    if not records:
        return
    connected, alive = connections(), set()
    for peer, record in records.items():
        pk, began = json.loads(record)
        if peer.decode() in connected if connected is not None else time.time() - began < BLIND_S:
            alive.add(pk)
        else:
            end(peer.decode())
    stale = timezone.now() - timedelta(seconds=min(20.0, settings.DATASET_SILENCE_S / 4))
    Dataset.objects.filter(pk__in=alive, state=State.CREATING, touched__lt=stale).update(touched=timezone.now())


def connections() -> set[str] | None:
    """Return the remote ends of this machine's TCP connections as `{address}:{port}`; None if not listed."""
    peers = set()
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, _, remote, state, *_ = line.split()
            if state == ESTABLISHED:
                peers.add(_peer(remote))
    return peers or None


def _peer(written: str) -> str:
    """Convert the kernel's `0100007F:7531` (words in the machine's byte order) to nginx's `{address}:{port}`."""
    address, _, port = written.partition(":")
    raw = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
    text = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return f"{text.removeprefix('::ffff:')}:{int(port, 16)}"
