"""Which version of the model serves: the files' pointer, the rows, and the word to everybody who has it in memory."""

from __future__ import annotations

from mlp.kernel import bus, keyvalue
from mlp.kernel.locking import Missing

from . import lifecycle, storage, subjects
from .models import ModelVersion
from .opnilog.store import Versions

UPDATE = {
    "bucket": subjects.MODEL_BUCKET,
    "bucket_files": {"model_file": subjects.MODEL_FILE, "vocab_file": subjects.VOCAB_FILE},
}

KEPT = 5  # beside the one that serves


def files() -> Versions:
    return Versions(storage.models())


def serve(version: str) -> ModelVersion:
    """Lets an earlier (or later) version serve. Raises Missing; Fault when NATS is away."""
    if "\x00" in version or not ModelVersion.objects.filter(version=version).exists():
        raise Missing("version")
    files().serve(version)
    row = lifecycle.serve_version(version)
    tell()
    return row


def serve_nothing() -> None:
    """After a reset: no model, until the next training."""
    files().serve(None)
    lifecycle.serve_nothing()


def prune() -> None:
    """Old versions go, rows and files; the one that serves stays, and so do the newest."""
    for row in ModelVersion.objects.filter(serving=False).order_by("-pk")[KEPT:]:
        files().remove(row.version)
        row.delete()


def tell() -> None:
    """`model_update`: a model is there to be loaded."""
    bus.send([(subjects.MODEL_UPDATE, keyvalue.dump(UPDATE))])
