"""Which version of the model serves: the rows decide, the files' pointer follows them, everybody who has a model in
memory is told. Used by the training's end, decisions, pages, REST and reconcile.
"""

from __future__ import annotations

import logging

from aiops import lifecycle
from aiops.models import ModelVersion, State, TrainingRun
from aiops.opnilog.store import BadVersion, Versions, verify
from aiops.wire import folders, subjects
from kernel import bus, keyvalue
from kernel.locking import Missing

log = logging.getLogger(__name__)

UPDATE = {
    "bucket": subjects.MODEL_BUCKET,
    "bucket_files": {"model_file": subjects.MODEL_FILE, "vocab_file": subjects.VOCAB_FILE},
}

KEPT = 5  # beside the one that serves


def files() -> Versions:
    return Versions(folders.models())


def serve(version: str) -> ModelVersion:
    """Lets an earlier (or later) version serve. Raises Missing; BadVersion; Fault when NATS is away."""
    if "\x00" in version or not ModelVersion.objects.filter(version=version).exists():
        raise Missing("version")
    verify(files().folder_of(version))
    row = lifecycle.serve_version(version)
    follow()
    tell()
    return row


def serve_nothing() -> None:
    """After a reset: no model, until the next training."""
    lifecycle.serve_nothing()
    follow()


def follow() -> None:
    """Points the files at what serves by the database. Any number of times, after every change and by reconcile.

    Nobody holds a lock while files change, so of two at once the slower may write what is true no more: each looks at
    the rows again after it has written.
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
    """Old versions go, rows and files; the one that serves stays, and so do the newest. So do files without a row: of
    a training that was killed, or reset, before it was decided that they serve.
    """
    follow()
    there = files().all()
    if not TrainingRun.objects.filter(state=State.TRAINING).exists():  # else it may be about to take its row
        for version in set(there) - set(ModelVersion.objects.values_list("version", flat=True)):
            _remove(version)
    for row in ModelVersion.objects.filter(serving=False).order_by("-pk")[KEPT:]:
        if _remove(row.version):
            row.delete()


def _remove(version: str) -> bool:
    """False for one that the pointer names, whatever the rows say: it goes once that has followed them."""
    try:
        files().remove(version)
    except BadVersion:
        return False
    return True


def tell() -> None:
    """`model_update`: a model is there to be loaded."""
    bus.send([(subjects.MODEL_UPDATE, keyvalue.dump(UPDATE))])
