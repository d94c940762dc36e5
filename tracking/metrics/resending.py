"""Reports over REST that were refused after a part of them had been stored: sent again they count once.

A sender numbers its reports by X-Message-Id, or names each by Idempotency-Key. For one that does neither, the ids of a
refused report are remembered with its content, for as long as the stream knows ids; an equal report that nobody has
refused is another report.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Callable

from django.core.cache import cache
from rest_framework.request import Request

from jobs.models import Job
from kernel import bus
from kernel.errors import Fault

from . import recording

log = logging.getLogger(__name__)

KEPT_S = recording.STREAM.duplicate_window_s
Messages = list[tuple[str, bytes, str]]


def publish(request: Request, job: Job, bodies: list[bytes], messages: Callable[[str], Messages]) -> None:
    """Publish what `messages` returns for the id that the report's messages are numbered from. Raises Fault."""
    if given := _given(request):
        bus.publish(messages(given))
        return
    digest = hashlib.sha256(b"\n".join([request.path.encode(), *bodies])).hexdigest()
    key = f"report:{job.pk}:{digest}"
    remembered = _attempt(lambda: cache.get(key))
    stem = remembered or f"{uuid.uuid4().hex}:"
    try:
        bus.publish(messages(stem))
    except Fault:
        _attempt(lambda: cache.set(key, stem, KEPT_S))
        raise
    if remembered:
        _attempt(lambda: cache.delete(key))


def _given(request: Request) -> str:
    """Return the id that the sender has given; that of Idempotency-Key names a report, and does not count."""
    key = request.headers.get("Idempotency-Key", "")
    return request.headers.get("X-Message-Id", "") or (key and f"{key[:90]}:")


def _attempt(work: Callable[[], str | None]) -> str | None:
    try:
        return work()
    except Exception as problem:  # without Valkey reports are taken all the same
        log.warning("the ids of refused reports: %s", problem)
        return None
