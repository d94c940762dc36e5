"""The serving version of the model: the rows decide, the files' pointer follows them, and all services are notified.

Used by the training's end, decisions, pages, REST and reconcile.
"""

from __future__ import annotations

import logging
import time

from django.conf import settings

from aiops import lifecycle
from aiops.models import ModelVersion, State, TrainingRun
from aiops.wire import folders, subjects
from kernel import bus, keyvalue
from kernel.locking import Missing
from opnilog.store import BadVersion, Versions, verify

from . import offering, requests

log = logging.getLogger(__name__)

YOUNG_S = 300
KEPT = 5  # of each model, besides the serving one


def files(model: int = 0) -> Versions:
    """Return the versions on disk, with the pointer of the platform's model or of a tenant's."""
    return Versions(folders.models(), model)


def serve(version: str, by: str) -> ModelVersion:
    """Make another version the serving one of its model. Raises Missing; BadVersion; Fault when NATS is unavailable."""
    if "\x00" in version or not ModelVersion.objects.filter(version=version).exists():
        raise Missing("version")
    verify(files().folder_of(version))
    row = lifecycle.serve_version(version, by)
    follow()
    if row.tenant_id is None:
        announce()
    return row


def deactivate() -> None:
    """Serve no model until the next training. Called after a reset."""
    lifecycle.deactivate()
    follow()


def follow() -> None:
    """Make the files' pointers follow the database. Idempotent; called after every change and by reconcile.

    No lock is held while files change, so the slower of two calls may write an outdated pointer: each reads the rows
    again after it has written.
    """
    tenants = ModelVersion.objects.filter(serving=True, tenant__isnull=False).values_list("tenant_id", flat=True)
    for model in {0, *files().pointers(), *tenants}:
        _follow(model)


def _follow(model: int) -> None:
    while True:
        row = lifecycle.serving(model or None)
        wanted = row.version if row else None
        if files(model).serving() == wanted:
            return
        try:
            files(model).serve(wanted)
        except BadVersion as problem:
            log.error("version %s serves by the database, but its files do not: %s", wanted, problem)
            return


def prune() -> None:
    """Delete old versions, rows and files, except the serving one and the newest.

    Files without a row are deleted, too: their training was killed, or reset, before they could serve.
    """
    follow()
    files().sweep(YOUNG_S)
    there = files().all()
    if not TrainingRun.objects.filter(
        state=State.TRAINING, queued=False
    ).exists():  # a newer one may be about to get its row
        for version in set(there) - set(ModelVersion.objects.values_list("version", flat=True)):
            if not _is_arriving(version):
                _remove(version)
    old = ModelVersion.objects.filter(serving=False).order_by("-pk")
    for tenant_id in set(old.order_by().values_list("tenant_id", flat=True)):
        for row in old.filter(tenant_id=tenant_id)[KEPT:]:
            if _remove(row.version):
                row.delete()


def _is_arriving(version: str) -> bool:
    """Return whether the version was fetched from another service just now, and may be about to get its row."""
    try:
        fetched = files().manifest(version).get("kind") == requests.OPNI
        return fetched and time.time() - files().folder_of(version).stat().st_mtime < YOUNG_S
    except (BadVersion, OSError, ValueError):
        return False


def _remove(version: str) -> bool:
    """Return False for the version that the pointer names, whatever the rows say: it is removed once the pointer
    follows.
    """
    try:
        files().remove(version)
    except BadVersion:
        return False
    return True


def announce() -> None:
    """Put the serving version into the bucket, where there is one, and publish `model_update`."""
    offering.offer_now()
    offering.note_announced()
    update = {"bucket": settings.AIOPS_S3_BUCKET or subjects.MODEL_BUCKET, "bucket_files": offering.FILES}
    bus.send([(subjects.MODEL_UPDATE, keyvalue.dump(update))])
