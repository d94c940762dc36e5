"""Uploads whose bytes are on their way, so that hours of one large file count as a sign of life (contract 3).

nginx tells the application when a body begins and when it is whole, not in between. So each larger upload is noted in
Valkey when it is let in, and while files in the spool grow, the datasets noted are kept alive. Coarse on purpose: a
broken-off upload is forgotten once nothing has grown for longer than nginx waits for bytes.
"""

from __future__ import annotations

import contextlib
import json
import stat
import time
from datetime import timedelta

from django.conf import settings
from django.utils import timezone
from redis.exceptions import RedisError

from mlp.kernel import storage
from mlp.kernel.broker import broker

from ..models import Dataset, State

KEY = "mlp:uploads"
WORTH_NOTING = 1 << 20  # a smaller body is through before anybody could call it silent
GROWN_S = 30.0
FORGET_S = 150.0  # nginx gives up a silent client after 120 s


def begin(request_id: str, pk: int, length: int | None) -> None:
    """An upload into the dataset was let in; its length, if told."""
    if request_id and (length is None or length >= WORTH_NOTING):
        with contextlib.suppress(RedisError):
            broker().client.hset(KEY, request_id, json.dumps([pk, length, time.time()]))


def end(request_id: str) -> None:
    """Its body is whole: `store` sees to the rest."""
    if request_id:
        with contextlib.suppress(RedisError):
            broker().client.hdel(KEY, request_id)


def keep_alive() -> None:
    """Renews the time-out of the datasets whose uploads still grow. Called each round of the reconcile loop."""
    try:
        noted = broker().client.hgetall(KEY)
    except RedisError:
        return
    if not noted:
        return
    now, growing, alive = time.time(), _growing(), set()
    for request_id, note in noted.items():
        pk, length, began = json.loads(note)
        if any(length is None or size <= length for size in growing):
            alive.add(pk)
        elif now - began > FORGET_S:
            end(request_id)
    stale = timezone.now() - timedelta(seconds=min(20.0, settings.DATASET_SILENCE_S / 4))
    Dataset.objects.filter(pk__in=alive, state=State.CREATING, touched__lt=stale).update(touched=timezone.now())


def _growing() -> list[int]:
    """Sizes of the spooled bodies that grew lately."""
    sizes, since = [], time.time() - GROWN_S
    for path in storage.spool_dir().iterdir():
        with contextlib.suppress(FileNotFoundError):
            info = path.lstat()
            if stat.S_ISREG(info.st_mode) and info.st_mtime > since:
                sizes.append(info.st_size)
    return sizes
