"""The body has arrived: check it, account for it, rename it into place. Called by server.py with the judged upload."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from django.http import HttpResponse

from kernel import storage
from kernel.errors import Fault

from ... import litter
from .. import inflight, lock_store, tree, unfinished
from ..admission import writing
from ..errors import HttpError
from . import part
from .upload import Part, Upload

log = logging.getLogger(__name__)


def store(upload: Upload) -> HttpResponse:
    """Store a whole file or one part. Raises HttpError, Fault, OSError, DatabaseError.

    201: a new file; 204: it replaced one; 202: a part, and the file is not complete.
    """
    if upload.part is not None:
        return _store_part(upload, upload.part)
    with _spooled(upload) as body:
        size = body.stat(follow_symlinks=False).st_size
        if upload.chunked or size >= inflight.WORTH_NOTING:
            inflight.end(upload.peer)
        return _finish(upload, body, size)


def _store_part(upload: Upload, piece: Part) -> HttpResponse:
    if piece.length:
        with _spooled(upload) as body:
            completed = part.append(upload, piece, body)
    else:
        completed = part.ask(upload, piece)
    if completed is None:
        arrived = unfinished.arrived(upload.target, piece.total)
        return HttpResponse(status=202, headers={"Upload-Offset": str(arrived)})
    try:
        return _finish(upload, completed, piece.total)
    except HttpError:
        completed.unlink(missing_ok=True)  # no further part could mend it: the client starts over
        raise


def _finish(upload: Upload, body: Path, size: int) -> HttpResponse:
    tree.make_public(body)
    verify_digest(upload.digest, body)
    replaced = _place(upload, body, size)
    return HttpResponse(status=204 if replaced else 201)


def _place(upload: Upload, body: Path, size: int) -> bool:
    """Rename the body into place under the dataset's lock; return whether it replaced a file."""
    target, name = upload.target, upload.target.steps[-1]
    with writing(target) as (quota,), tree.folder(target.steps[:-1], make=True) as parent:
        lock_store.require(upload.conditions, upload.holder.username, target)
        old = existing(parent, name)
        lock_store.require_match(upload.conditions, target)
        if old and stat.S_ISDIR(old.st_mode):
            raise HttpError(
                405, "a folder of that name already exists", field="path", Allow="PROPFIND, DELETE, MOVE, COPY"
            )
        growth = size - (old.st_size if old and stat.S_ISREG(old.st_mode) else 0)
        if quota.row is not None and quota.row.stored + growth > quota.row.size and litter.is_litter(target.path, body):
            body.unlink()  # a refusal would fail what a desktop copies, and it is no part of the dataset
            return old is not None
        quota.charge(growth)
        old = existing(parent, name)
        if old:
            tree.carry_properties(parent, name, body)
        os.rename(body, name, dst_dir_fd=parent)
    return old is not None


def verify_digest(digest: str, body: Path | str) -> None:
    """Raise HttpError 400 when the client sent a checksum, and it is not that of the body."""
    if digest and tree.digest_header(tree.sha256_of_path(body)) != digest:
        raise HttpError(400, "does not belong to the bytes that arrived", field="Repr-Digest")


def existing(parent: int, name: str) -> os.stat_result | None:
    """Return the status of the entry of that name in the folder with this descriptor; None when there is none."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _spooled(upload: Upload) -> Iterator[Path]:
    """Give the body's file. nginx writes none for a small or empty body: then one is written, removed when left over.

    Raises Fault for a path that is not a file of the spool, which only a wrong configuration of nginx can name.
    """
    folder = storage.spool_dir()
    if not upload.spooled:
        written = Path(tree.write_body(folder, upload.body))
        try:
            yield written
        finally:
            written.unlink(missing_ok=True)
        return
    path = folder / Path(upload.spooled).name
    # compared as written first: to resolve a path costs more than everything else here
    elsewhere = os.path.dirname(upload.spooled) != str(folder) and (
        Path(upload.spooled).parent.resolve() != folder.resolve()
    )
    if elsewhere or not stat.S_ISREG(path.lstat().st_mode):
        log.error("nginx named %r as an upload's body, which is not a file of the spool", upload.spooled)
        raise Fault()
    yield path
