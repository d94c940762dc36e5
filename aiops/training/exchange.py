"""Models of other trainers: taken from the bucket when they are announced, verified, and served as a version.

Called by the service `models`, of which one replica is active. How ours get there is in offering.py.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import secrets
from pathlib import Path

from aiops import lifecycle
from aiops.wire import bucket, folders, kv, lease, subjects
from kernel.errors import Fault
from kernel.messages import Message
from kernel.storage import remove_tree
from opnilog.store import MANIFEST

from . import requests, versions
from .offering import FILES, others_train, withdraw

log = logging.getLogger(__name__)

SAMPLE = "connected to <ip>"
WORDS = 300  # characters of the reason why a model does not load
NO_BUCKET = Message("another service has trained a model, but no bucket is set to fetch it from (MLP_AIOPS_S3_BUCKET)")


def update(message: dict) -> None:
    """Handle `model_update`: make room for another trainer, take its model."""
    status = message.get("status")
    if status == subjects.STATUS_RESET or (status == subjects.TRAINING and others_train()):
        withdraw()
    elif "bucket" in message:
        _take(message)


def _take(message: dict) -> None:
    current = lease.current()
    uuid, foreign = str(current.get("uuid") or ""), _is_foreign(current)
    try:
        store = bucket.get()
        if store is None:
            if foreign:
                requests.failed(uuid, NO_BUCKET)
            return
        tags = {name: store.tag(name) for name in FILES.values()}
        ours = kv.exchange().get("tags") or {}
        if tags == ours or not (foreign or any(tags.values())):
            return
        foreign = True
        version = fetch(store, message, tags)
    except Fault as problem:
        if not foreign:
            log.warning("a model's announcement cannot be compared with the bucket: %s", problem.msg)
            return
        reason = Message("the model that another service has trained cannot be used: %(problem)s", problem=problem.msg)
        requests.failed(uuid, reason)
        return
    known = kv.model_status()
    if known is None or known["status"] != subjects.COMPLETED:
        requests.set_status(subjects.COMPLETED, uuid=uuid, percentageCompleted=100)
    else:
        kv.put_detail(uuid=uuid, state=subjects.COMPLETED)
    versions.announce()  # to our services: they forget the verdicts of the model before
    log.info("version %s, trained by another service, serves", version)


def _is_foreign(current: dict) -> bool:
    """Return whether the last training was not ours, and we have announced no version since."""
    if not current or lifecycle.find(current.get("uuid") or "") is not None:
        return False
    return float(kv.exchange().get("announced") or 0) < float(current.get("until") or 0)


def fetch(store: bucket.Bucket, message: dict, tags: dict[str, str]) -> str:
    """Make the model in the bucket a version, serve it and return its name. Raises Fault with the reason."""
    named = str(message.get("bucket"))
    if named != store.name:
        raise Fault(Message("it is in the bucket %(bucket)s, not in %(ours)s", bucket=named[:100], ours=store.name))
    if message.get("bucket_files") != FILES:
        raise Fault(Message("its files have other names than %(names)s", names=", ".join(FILES.values())))
    folder = folders.models() / f".{secrets.token_hex(6)}.part"
    folder.mkdir(parents=True)
    try:
        for name in FILES.values():
            store.fetch(name, folder / name)
        _check(folder)
        manifest = _manifest(folder)
        version = versions.files().add(folder)
    except OSError as problem:
        raise Fault(Message("it cannot be stored: %(problem)s", problem=problem.strerror or "")) from problem
    finally:
        remove_tree(folder)
    lifecycle.serve_foreign(version, manifest)
    kv.change_exchange(version=version, tags=tags)
    versions.follow()
    return version


def _check(folder: Path) -> None:
    """Load the model and let it judge a line, as the services will do at once. Raises Fault."""
    try:
        importlib.import_module("opnilog.score").Scorer.open(folder, "cpu").score([SAMPLE])
    except Exception as problem:  # whatever a file of another provokes, it is a reason
        words = " ".join(str(problem).split())[:WORDS] or type(problem).__name__
        raise Fault(Message("it does not load: %(problem)s", problem=words)) from problem


def _manifest(folder: Path) -> dict:
    """Write and return the manifest of fetched files."""
    digests = {}
    for name in FILES.values():
        with (folder / name).open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    with (folder / subjects.VOCAB_FILE).open(encoding="utf-8") as file:
        words = int([next(file), next(file)][1])
    manifest = {"kind": requests.OPNI, "words": words, "files": digests}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return manifest
