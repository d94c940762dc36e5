"""The methods of the data service other than PUT: one function each, on metadata only, never on a file's bytes.

`verb` is the view that nginx calls. It answers, or names the file that nginx is to send (X-Accel-Redirect). Routed by
datasets.data_urls.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable
from typing import NamedTuple

from django.http import FileResponse, HttpRequest, HttpResponse, JsonResponse

from accounts.models import User
from accounts.throttle import client_address
from accounts.tokens import Holder
from kernel import downloads, storage
from kernel.effects import DESTROY, READ, SUBMIT, Effect
from kernel.messages import Message

from .. import lifecycle
from ..buckets import manifests
from ..models import Dataset, State
from ..serializers import DatasetOut
from . import conditions, lock_store, tree, unfinished
from .admission import (
    clear,
    discard,
    find_dataset,
    must_be_creating,
    must_be_readable,
    require_owner,
    require_reader,
    require_room,
    require_scope,
    writing,
)
from .errors import HttpError
from .gate import authenticate, guarded
from .lock_verbs import lock, unlock
from .paths import Target, href, parse, parse_destination
from .propfind import propfind
from .props import proppatch

FILES = "/-data/files"  # nginx's internal address of {root}/datasets


def options(request: HttpRequest, holder: Holder | None, target: Target) -> HttpResponse:
    """Name the methods and the WebDAV classes."""
    allow = ", ".join(["PUT", *METHODS])
    return HttpResponse(status=200, headers={"DAV": "1, 2", "MS-Author-Via": "DAV", "Allow": allow})


def get(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Let nginx send the file, with ranges and validators, for GET and HEAD; with its checksum where it is stored."""
    if not target.dataset:
        raise HttpError(405, "must be a file: /data/{user}/{dataset}/{file}", field="path", Allow="PROPFIND, OPTIONS")
    row = find_dataset(target)
    must_be_readable(row)
    external = row is not None and row.external
    info = None
    if target.parts:
        info = manifests.status(row, target.path) if external else tree.status(target.steps)
    if info is None and target.parts:
        raise HttpError(404, "no such file", field="path")
    if info is None or stat.S_ISDIR(info.st_mode) or target.slash:
        raise HttpError(405, "is a folder; use PROPFIND to list it", field="path", Allow="PROPFIND, OPTIONS")
    if external:
        return _redirect(request, row, target, info)
    if downloads.is_matching(request):
        response = FileResponse(tree.reader(target.steps), content_type=downloads.BYTES, headers=downloads.SAFE)
    else:
        response = HttpResponse(content_type=downloads.BYTES)
        response["X-Accel-Redirect"] = FILES + href(*target.steps).removeprefix("/data")
    if digest := tree.known_sha256(target.steps):
        response["Repr-Digest"] = tree.digest_header(digest)
    return downloads.validated(request, response, info)


def _redirect(request: HttpRequest, row: Dataset, target: Target, info: os.stat_result) -> HttpResponse:
    """Send the client to the file in its bucket, at an address that is good for a few minutes. HEAD is answered here,
    since such an address is for GET only. Raises HttpError 409 where the object is not the one that was listed.
    """
    if request.method == "HEAD":
        return HttpResponse(content_type=downloads.BYTES, headers={"Content-Length": str(info.st_size)})
    address = manifests.address(row, row.version, target.path)
    if not address:
        return HttpResponse(content_type=downloads.BYTES)
    return HttpResponse(status=302, headers={"Location": address, "Cache-Control": "no-store"})


def delete(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Delete a file or folder of a dataset that is creating, or of `.home`; or a whole dataset."""
    if not target.dataset:
        raise HttpError(405, "must be a file, folder or dataset to delete", field="path", Allow="PROPFIND, OPTIONS")
    if not target.parts:
        return _delete_dataset(holder, target)
    with writing(target) as (quota,):
        given = conditions.parse(request.META)
        lock_store.require(given, holder.username, target, below=True)
        lock_store.require_match(given, target)
        info = tree.status(target.steps)
        if info is None:
            raise HttpError(404, "no such file", field="path")
        if target.slash and stat.S_ISREG(info.st_mode):
            raise HttpError(404, "no such folder", field="path")
        quota.charge(-tree.size(target.steps))
        trash = discard(target.steps)
        lock_store.remove_below(target)
    clear(trash)
    return HttpResponse(status=204)


def _delete_dataset(holder: Holder, target: Target) -> HttpResponse:
    """Empty a dataset that is creating; delete one in ready or error, as REST does."""
    if target.is_home:
        raise HttpError(403, ".home cannot be deleted; delete the files in it", field="path")
    require_scope(holder, target, DESTROY, whole=True)
    row = find_dataset(target)
    if row.state in {State.READY, State.ERROR}:
        owner = User.objects.get(username=target.user)
        deleted = lifecycle.delete_dataset(user=owner, name=target.dataset, by=holder.username)
        return JsonResponse(DatasetOut(deleted).data)
    must_be_creating(row)
    with writing(target) as (quota,):
        quota.charge(-quota.row.stored)
        trash = discard(target.steps)
    clear(trash)
    clear(unfinished.folder(target.user, target.dataset))
    return HttpResponse(status=204)


def mkcol(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Create a folder inside a dataset or `.home`."""
    if len(request.body):
        raise HttpError(415, "must be empty for MKCOL", field="body")
    if not target.dataset:
        raise HttpError(405, "the folder already exists", field="path")
    if not target.parts:
        if target.is_home or _exists(target):
            raise HttpError(405, "the folder already exists", field="path")
        raise HttpError(403, "a dataset is created with its size: POST /api/v1/users/{user}/datasets", field="path")
    with writing(target):
        lock_store.require(conditions.parse(request.META), holder.username, target)
        with tree.folder(target.steps[:2], make=True):
            pass  # the dataset's own folder is created with its first file
        if tree.status(target.steps) is not None:
            raise HttpError(405, "a file or folder of that name already exists", field="path")
        with tree.folder(target.steps[:-1]) as parent:
            os.mkdir(target.steps[-1], 0o755, dir_fd=parent)
    return HttpResponse(status=201)


def move(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Rename a file or folder, also into another dataset."""
    destination = _destination(request, holder, target)
    with writing(target, destination) as (source, sink):
        given = conditions.parse(request.META)
        lock_store.require(given, holder.username, target, destination, below=True)
        lock_store.require_match(given, target)
        _source(target, destination)
        size, replaced = tree.size(target.steps), _replaced(request, holder, destination)
        with tree.folder(target.steps[:-1]) as old, tree.folder(_parent(destination)) as new:
            if source is sink:
                sink.charge(-(replaced or 0))
            else:
                sink.charge(size - (replaced or 0))
                source.charge(-size)
            trash = discard(destination.steps) if replaced is not None else None
            os.rename(target.steps[-1], destination.steps[-1], src_dir_fd=old, dst_dir_fd=new)
            lock_store.remove_below(target)
    clear(trash)
    return HttpResponse(status=201 if replaced is None else 204)


def copy(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Copy into the spool first and rename from there, so that the copy appears at once; never more than fits."""
    destination = _destination(request, holder, target)
    row = find_dataset(target)
    if row is not None and row.state not in {State.READY, State.CREATING}:
        must_be_readable(row)
    info, given = _source(target, destination), conditions.parse(request.META)
    lock_store.require_match(given, target)
    with writing(destination) as (sink,):  # refuses early what cannot fit; accounted for below
        size = tree.size(target.steps)
        sink.charge(size - (_replaced(request, holder, destination) or 0))
        sink.charge((_replaced(request, holder, destination) or 0) - size)
    draft = storage.spool_dir() / f"copy-{uuid.uuid4().hex}"
    trash = None
    try:
        _copy_to(target.steps, info, draft, request.META.get("HTTP_DEPTH", "infinity"))
        with writing(destination) as (sink,):
            lock_store.require(given, holder.username, destination, below=True)
            lock_store.require_match(given, target)
            replaced = _replaced(request, holder, destination)
            copied = tree.size((".spool", draft.name))
            with tree.folder(_parent(destination)) as new:
                sink.charge(copied - (replaced or 0))
                trash = discard(destination.steps) if replaced is not None else None
                os.rename(draft, destination.steps[-1], dst_dir_fd=new)
    finally:
        clear(draft)
    clear(trash)
    return HttpResponse(status=201 if replaced is None else 204)


def _copy_to(source: tuple[str, ...], info: os.stat_result, draft, depth: str) -> None:
    if stat.S_ISREG(info.st_mode):
        tree.copy_file(source, draft)
        return
    draft.mkdir()
    if depth == "0":
        return
    for relative, below in tree.walk(source):
        path = draft.joinpath(*relative)
        if stat.S_ISDIR(below.st_mode):
            path.mkdir()
        else:
            tree.copy_file(source + relative, path)
        os.utime(draft)  # so that the sweep of the spool does not take it for abandoned


def _destination(request: HttpRequest, holder: Holder, target: Target) -> Target:
    destination = parse_destination(request.META.get("HTTP_DESTINATION", ""), request.META.get("HTTP_HOST", ""))
    require_scope(holder, destination, SUBMIT)
    require_owner(holder, destination)
    if not target.parts or not destination.parts:
        raise HttpError(403, "only files and folders within a dataset can be moved or copied", field="path")
    if target.steps == destination.steps:
        raise HttpError(403, "must differ from the source", field="Destination")
    if destination.steps[: len(target.steps)] == target.steps:
        raise HttpError(409, "must not be inside the source", field="Destination")
    if target.steps[: len(destination.steps)] == destination.steps:
        raise HttpError(409, "must not contain the source", field="Destination")
    return destination


def _source(target: Target, destination: Target) -> os.stat_result:
    info = tree.status(target.steps)
    if info is None:
        raise HttpError(404, "no such file", field="path")
    return info


def _replaced(request: HttpRequest, holder: Holder, destination: Target) -> int | None:
    """Return the bytes at the destination, None for nothing. Raises HttpError 412 if it must not be replaced, and 403
    for a folder unless the token may delete: all that is in it goes.
    """
    there = tree.status(destination.steps)
    if there is None:
        return None
    if stat.S_ISDIR(there.st_mode):
        require_scope(holder, destination, DESTROY)
    if request.META.get("HTTP_OVERWRITE", "T").strip().upper() == "F":
        raise HttpError(412, "a file of that name already exists", field="Destination")
    return tree.size(destination.steps)


def _parent(destination: Target) -> tuple[str, ...]:
    """Return the destination's folder; a dataset's own is created. Raises HttpError 409 when it is missing."""
    if len(destination.parts) == 1:
        with tree.folder(destination.steps[:2], make=True):
            pass
    elif tree.status(destination.steps[:-1]) is None:
        raise HttpError(409, "the parent folder does not exist", field="Destination")
    return destination.steps[:-1]


def _exists(target: Target) -> bool:
    try:
        find_dataset(target)
    except HttpError:
        return False
    return True


class Method(NamedTuple):
    """A method and its effect on the address (kernel.effects); a destination is judged by itself."""

    answer: Callable[[HttpRequest, Holder, Target], HttpResponse]
    effect: Effect
    stores: bool = False  # refused while the disk is nearly full


METHODS = {
    "GET": Method(get, READ),
    "HEAD": Method(get, READ),
    "OPTIONS": Method(options, READ),
    "DELETE": Method(delete, DESTROY),
    "PROPFIND": Method(propfind, READ),
    "MKCOL": Method(mkcol, SUBMIT, stores=True),
    "MOVE": Method(move, SUBMIT, stores=True),
    "COPY": Method(copy, READ, stores=True),
    "PROPPATCH": Method(proppatch, SUBMIT, stores=True),
    "LOCK": Method(lock, SUBMIT, stores=True),
    "UNLOCK": Method(unlock, SUBMIT),
}


@guarded
def verb(request: HttpRequest) -> HttpResponse:
    """Serve every method but PUT."""
    method = METHODS.get(request.method)
    if method is None:
        raise HttpError(
            405,
            Message("%(method)s is not supported here", method=request.method[:20]),
            field="method",
            Allow=", ".join(["PUT", *METHODS]),
        )
    if request.method == "OPTIONS":  # many clients send it without credentials; the answer is the same for everybody
        return method.answer(request, None, Target())
    holder = authenticate(request.META.get("HTTP_AUTHORIZATION", ""), client_address(request))
    target = parse(request.META.get("HTTP_X_DATA_URI", ""))
    require_scope(holder, target, method.effect)
    (require_reader if method.effect == READ else require_owner)(holder, target)
    if method.stores:
        require_room()
    return method.answer(request, holder, target)
