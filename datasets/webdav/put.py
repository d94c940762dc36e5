"""PUT: may this upload be, take this upload. nginx asks `may` before it reads the body, spools the body itself, then
hands its path to `store`. No byte of a file passes through Python. Routed by datasets.data_urls.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from pathlib import Path

from django.http import HttpRequest, HttpResponse

from accounts.tokens import Holder
from kernel import storage
from kernel.errors import Fault

from ..models import Dataset
from . import inflight, lock_store, parts, tree
from .admission import admit_write, find, must_be_creating, own, writing
from .errors import HttpError
from .gate import authenticate, for_subrequest, guarded
from .paths import Target, parse

log = logging.getLogger(__name__)

DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")


@for_subrequest
@guarded
def may(request: HttpRequest) -> HttpResponse:
    """May this PUT be? Asked before its body is read; judges what can be known by then."""
    storage.spool_dir()  # made anew should it have vanished: nginx makes it at its start only
    holder = authenticate(request)
    target, length, part = put_target(request, holder), _length(request), parts.told(request)
    lock_store.must_hold(request, holder.username, target)
    if part is None:
        row, left = admit_write(target, length)
    else:
        row, left = _admit_part(target, part, length)
    if row is not None:
        inflight.begin(request.META.get("HTTP_X_DATA_PEER", ""), row.pk, length)
    if "chunked" in request.META.get("HTTP_X_DATA_CHUNKED", "").lower():
        # no length to be judged by: nginx takes the body in the location that allows just enough
        headers = {"X-Data-Status": "chunked", "X-Data-Class": _class(left)}
        return HttpResponse(status=403, headers=headers)
    return HttpResponse(status=204)


@guarded
def store(request: HttpRequest) -> HttpResponse:
    """Takes the body that nginx has spooled: checks it under the dataset's lock, accounts, renames it into place.

    The caller is asked for again: the token may have died, and the dataset moved on, while the body came.
    """
    target, part = put_target(request, authenticate(request)), parts.told(request)
    if part:
        return _store_part(request, target, part)
    spool, made = spooled(request)
    try:
        return _finish(request, target, spool)
    finally:
        if made:
            spool.unlink(missing_ok=True)


def _finish(request: HttpRequest, target: Target, spool: Path) -> HttpResponse:
    """A whole file: checked, accounted for and put into place."""
    info = spool.stat(follow_symlinks=False)
    if info.st_size >= inflight.WORTH_NOTING:
        inflight.end(request.META.get("HTTP_X_DATA_PEER", ""))
    verify_digest(request, spool)
    os.chmod(spool, 0o644)
    return HttpResponse(status=204 if _place(request, target, spool, info.st_size) else 201)


def _store_part(request: HttpRequest, target: Target, part: parts.Part) -> HttpResponse:
    """Adds the part. The last one, or a question after a kill had come in between, puts the file into place."""
    if part.length:
        spool, _ = spooled(request)
        size = spool.stat(follow_symlinks=False).st_size
        _admit_part(target, part, size)
        whole = parts.take(target, part, spool, size)
        inflight.end(request.META.get("HTTP_X_DATA_PEER", ""))
    else:
        must_be_creating(find(target))
        whole = parts.whole(target, part.total)
    if whole is None:
        return HttpResponse(status=202, headers={"Upload-Offset": str(parts.arrived(target, part.total))})
    try:
        return _finish(request, target, whole)
    except HttpError:
        whole.unlink(missing_ok=True)  # refused as it is: to be begun anew
        raise


def put_target(request: HttpRequest, holder: Holder) -> Target:
    target = parse(request.META.get("HTTP_X_DATA_URI", ""))
    own(holder, target)
    if not target.parts or target.slash:
        raise HttpError(405, "path: PUT takes a file's path: /data/{user}/{dataset}/{file}")
    if request.META.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        raise HttpError(415, "Content-Encoding: a file is uploaded as it is")
    return target


def _admit_part(target: Target, part: parts.Part, length: int | None) -> tuple[Dataset | None, int]:
    """May this part of a file be? Raises HttpError, as `admit_write` does for the whole file."""
    if length is None:
        raise HttpError(411, "Content-Length: must be told for a part")
    if length != part.length:
        raise HttpError(400, f"Content-Range: names {part.length} bytes, {length} come")
    found = admit_write(target, part.total, held=lambda: parts.held(target), coming=part.length)
    parts.must_fit(target, part)
    return found


def _length(request: HttpRequest) -> int | None:
    told = request.META.get("HTTP_X_DATA_LENGTH", "")
    return int(told) if told.isascii() and told.isdigit() else None


def _place(request: HttpRequest, target: Target, spool: Path, size: int) -> bool:
    """Renames the spooled body into place under the dataset's lock; returns whether it replaced a file."""
    with writing(target) as (room,), tree.folder(target.steps[:-1], make=True) as parent:
        lock_store.must_hold(request, authenticate(request).username, target)
        replaced = at(parent, target.steps[-1])
        if replaced and request.META.get("HTTP_IF_NONE_MATCH", "").strip() == "*":
            raise HttpError(412, "path: a file of that name is there already")
        _must_match(request, target)
        if replaced and stat.S_ISDIR(replaced.st_mode):
            raise HttpError(405, "path: a folder of that name is there", Allow="PROPFIND, DELETE, MOVE, COPY")
        room.grow(size - (replaced.st_size if replaced and stat.S_ISREG(replaced.st_mode) else 0))
        if replaced:
            tree.carry_properties(parent, target.steps[-1], spool)
        os.rename(spool, target.steps[-1], dst_dir_fd=parent)
    return replaced is not None


def _must_match(request: HttpRequest, target: Target) -> None:
    """`If-Match`: only in place of what the client has seen. Raises HttpError 412."""
    wanted = request.META.get("HTTP_IF_MATCH", "").strip()
    there = lock_store.etag(target)
    if wanted and not (there and (wanted == "*" or there in [one.strip() for one in wanted.split(",")])):
        raise HttpError(412, "If-Match: another file is there, or none")


def _class(room: int) -> str:
    """The smallest of nginx's locations for chunked bodies (1m, 4m, … 1024g) that holds `room` bytes."""
    mebi = 1
    while mebi << 20 < room and mebi < 1 << 20:
        mebi *= 4
    return f"{mebi}m" if mebi < 1024 else f"{mebi >> 10}g"


def spooled(request: HttpRequest) -> tuple[Path, bool]:
    """The body's file, and whether we made it ourselves (a PUT without any body has none)."""
    told = request.META.get("HTTP_X_DATA_FILE", "")
    folder = storage.spool_dir()
    if not told:
        path = folder / f"empty-{time.time_ns()}-{os.getpid()}-{id(request)}"
        path.touch(mode=0o600, exist_ok=False)
        return path, True
    path = folder / Path(told).name
    # compared as written first: resolving costs more than all the rest
    apart = os.path.dirname(told) != str(folder) and Path(told).parent.resolve() != folder.resolve()
    if apart or not stat.S_ISREG(path.lstat().st_mode):
        log.error("nginx handed over %r, which is no file of the spool", told)
        raise Fault()
    return path, False


def verify_digest(request: HttpRequest, spool: Path | str) -> None:
    """A checksum sent along (`Repr-Digest`, RFC 9530) must be that of what arrived."""
    told = request.META.get("HTTP_REPR_DIGEST", "")
    if not told:
        return
    wanted = DIGEST.search(told)
    if wanted is None:
        raise HttpError(400, "Repr-Digest: must be sha-256=:{base64}:")
    if tree.digest_header(tree.sha256_of_path(spool)) != f"sha-256=:{wanted[1]}:":
        raise HttpError(400, "Repr-Digest: does not belong to the bytes that arrived")


def at(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
