"""The background tasks of datasets. A message may arrive twice or late: the lifecycle verb decides what to do."""

from __future__ import annotations

import dramatiq

from kernel.broker import broker

from . import copies, lifecycle, versions
from .buckets import caching, listing
from .exports import sending

CHECKSUM_MS = COPY_MS = 24 * 3_600_000


@dramatiq.actor(actor_name="datasets.copy", queue_name="files", broker=broker(), max_retries=5, time_limit=COPY_MS)
def copy(pk: int, follow: bool = True) -> None:
    copies.copy(pk, follow)


@dramatiq.actor(actor_name="datasets.erase", queue_name="files", broker=broker(), max_retries=5)
def erase(pk: int) -> None:
    lifecycle.erase(pk)


@dramatiq.actor(actor_name="datasets.erase_version", queue_name="files", broker=broker(), max_retries=5)
def erase_version(pk: int) -> None:
    versions.erase_version(pk)


@dramatiq.actor(
    actor_name="datasets.checksum", queue_name="files", broker=broker(), max_retries=5, time_limit=CHECKSUM_MS
)
def checksum(pk: int) -> None:
    versions.checksum(pk)


@dramatiq.actor(actor_name="datasets.refresh", queue_name="files", broker=broker(), max_retries=5, time_limit=COPY_MS)
def refresh(pk: int, by: str) -> None:
    listing.refresh(pk, by)


@dramatiq.actor(actor_name="datasets.fetch", queue_name="files", broker=broker(), max_retries=5, time_limit=COPY_MS)
def fetch(key: int | str) -> None:
    caching.fetch(key)


@dramatiq.actor(actor_name="datasets.export", queue_name="files", broker=broker(), max_retries=5, time_limit=COPY_MS)
def export(pk: int, follow: bool = True) -> None:
    sending.run(pk, follow)
