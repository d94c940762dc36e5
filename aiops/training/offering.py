"""The serving version in the bucket, for Opni's services: under Opni's names, with the network that they load.

`kv.exchange` says which version's objects they are, by their tags; other tags mean that another trainer has put a model
there. Opni's inference service empties the bucket when a training starts, and its trainer waits until it is empty, so
what is missing is put back only while nobody else trains. Called where a version starts to serve, and by the exchange.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from aiops import lifecycle
from aiops.models import ModelVersion, State, TrainingRun
from aiops.wire import bucket, folders, kv, lease, subjects
from kernel.errors import Fault

from .requests import OPNI

log = logging.getLogger(__name__)

FILES = {"model_file": subjects.MODEL_FILE, "vocab_file": subjects.VOCAB_FILE}
FOLDER = "opni"  # of a version's files for Opni's services


def offer(overwrite: bool = False) -> None:
    """Put the serving version's files into the bucket, unless they are there.

    A model of another trainer stays, unless `overwrite`: a version has just been chosen. Raises Fault.
    """
    store = bucket.get()
    row = lifecycle.serving()
    if store is None or row is None or others_train():
        return
    files = _files(row)
    if files is None:
        if overwrite:
            withdraw()  # what is there does not serve any more
        return
    known = kv.exchange()
    tags = {name: store.tag(name) for name in FILES.values()}
    ours = known.get("tags") or {}
    if known.get("version") == row.version and tags == ours:
        return
    if any(tag and tag != ours.get(name) for name, tag in tags.items()) and not overwrite:
        return
    for name, path in files.items():  # noted one by one, so that half of an upload is not taken for another's model
        ours = {**ours, name: store.put(name, path)}
        kv.change_exchange(version="", tags=ours)
    kv.change_exchange(version=row.version)
    log.info("version %s is in the bucket %s", row.version, store.name)


def offer_now() -> None:
    """Put a version that has just been chosen into the bucket. A failure is logged, and the exchange tries again."""
    try:
        offer(overwrite=True)
    except Fault as problem:
        log.warning("the model could not be put into the bucket; it is tried again: %s", problem.msg)


def withdraw() -> None:
    """Remove our files from the bucket: another service starts to train, or no version serves. Raises Fault."""
    store = bucket.get()
    if store is None:
        return
    ours = kv.exchange().get("tags") or {}
    for name, tag in ours.items():
        if tag and store.tag(name) == tag:
            store.remove(name)
    if ours:
        kv.change_exchange(version="", tags=dict.fromkeys(FILES.values(), ""))


def note_announced() -> None:
    """Record that a version is being announced, so that the message is not taken for another trainer's."""
    kv.change_exchange(announced=time.time())


def others_train() -> bool:
    """Return whether a service that is not ours trains now."""
    ours = TrainingRun.objects.filter(state=State.TRAINING, queued=False)
    return lease.is_live(lease.current()) and not ours.exists()


def _files(row: ModelVersion) -> dict[str, Path] | None:
    """Return the version's files by object; None for one without: it was trained before the bucket was set."""
    folder = folders.models() / row.version
    source = folder if row.manifest.get("kind") == OPNI else folder / FOLDER
    files = {name: source / name for name in FILES.values()}
    return files if all(path.is_file() for path in files.values()) else None
