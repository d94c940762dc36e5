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
KEPT = 5  # besides the serving one


def files() -> Versions:
    return Versions(folders.models())


def serve(version: str) -> ModelVersion:
    """Make another version the serving one. Raises Missing; BadVersion; Fault when NATS is unavailable."""
    if "\x00" in version or not ModelVersion.objects.filter(version=version).exists():
        raise Missing("version")
    verify(files().folder_of(version))
    row = lifecycle.serve_version(version)
    follow()
    announce()
    return row


def deactivate() -> None:
    """Serve no model until the next training. Called after a reset."""
    lifecycle.deactivate()
    follow()


def follow() -> None:
    """Make the files' pointer follow the database. Idempotent; called after every change and by reconcile.

    No lock is held while files change, so the slower of two calls may write an outdated pointer: each reads the rows
    again after it has written.
    """
    while True:
        row = lifecycle.serving()
        wanted = row.version if row else None
        if files().serving() == wanted:
            return
        try:
            files().serve(wanted)
        except BadVersion as problem:
            log.error("version %s serves by the database, but its files do not: %s", wanted, problem)
            return


def prune() -> None:
    """Delete old versions, rows and files, except the serving one and the newest.

    Files without a row are deleted, too: their training was killed, or reset, before they could serve.
    """
    follow()
    there = files().all()
    if not TrainingRun.objects.filter(state=State.TRAINING).exists():  # a newer one may be about to get its row
        for version in set(there) - set(ModelVersion.objects.values_list("version", flat=True)):
            if not _is_arriving(version):
                _remove(version)
    for row in ModelVersion.objects.filter(serving=False).order_by("-pk")[KEPT:]:
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
