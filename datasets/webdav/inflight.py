"""Uploads whose bytes are on their way, so that hours of one large file count as a sign of life (contract 3).

nginx tells the application when a body begins and when it is whole, not in between. But it closes a connection on
which nothing has come for two minutes. So each upload that nginx asks about is noted in Valkey with its connection, and
as long as that stands, however slow it is, the dataset is kept alive: it and no other.
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
WORTH_NOTING = 100_000  # smaller bodies are not asked about (data.conf.tmpl)
BLIND_S = 3600.0  # for how long an upload is believed where the system shows no connections
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED = "01"


def begin(peer: str, pk: int, length: int | None) -> None:
    """An upload into the dataset was let in; `peer` is the client's `{address}:{port}`."""
    if peer and (length is None or length >= WORTH_NOTING):
        with contextlib.suppress(RedisError):
            broker().client.hset(KEY, peer, json.dumps([pk, time.time()]))


def end(peer: str) -> None:
    """Its body is whole: `store` sees to the rest."""
    if peer:
        with contextlib.suppress(RedisError):
            broker().client.hdel(KEY, peer)


def keep_alive() -> None:
    """Renews the time-out of the datasets whose uploads are on their way. Called each round of the reconcile loop."""
    try:
        noted = broker().client.hgetall(KEY)
    except RedisError:
        return
    if not noted:
        return
    standing, alive = connections(), set()
    for peer, note in noted.items():
        pk, began = json.loads(note)
        if peer.decode() in standing if standing is not None else time.time() - began < BLIND_S:
            alive.add(pk)
        else:
            end(peer.decode())
    stale = timezone.now() - timedelta(seconds=min(20.0, settings.DATASET_SILENCE_S / 4))
    Dataset.objects.filter(pk__in=alive, state=State.CREATING, touched__lt=stale).update(touched=timezone.now())


def connections() -> set[str] | None:
    """The far ends of this machine's connections as `{address}:{port}`; None where the system does not say."""
    found = set()
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, _, remote, state, *_ = line.split()
            if state == ESTABLISHED:
                found.add(_peer(remote))
    return found or None


def _peer(written: str) -> str:
    """`0100007F:7531`, words in the machine's order, as nginx writes it."""
    address, _, port = written.partition(":")
    raw = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
    text = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return f"{text.removeprefix('::ffff:')}:{int(port, 16)}"
