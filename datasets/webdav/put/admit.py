"""May this upload be? nginx asks before it reads the body, so a refused upload is refused before it is sent."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from accounts.throttle import client_address
from kernel import disk, storage

from .. import inflight, lock_store, tree
from ..admission import admit_write, require_room
from ..gate import authenticate, for_subrequest, guarded
from . import part
from .upload import Upload, read_upload


@for_subrequest
@guarded
def admit(request: HttpRequest) -> HttpResponse:
    """Answer 204 when the upload may be sent, by all that can be known before its body.

    A chunked body has no length to be judged by: the answer names the class of nginx's locations that just holds what
    still fits (`X-Data-Class`). Everything is judged again when the body has arrived.
    """
    storage.spool_dir()  # created again if it has vanished: nginx creates it only when it starts
    holder = authenticate(request.META.get("HTTP_AUTHORIZATION", ""), client_address(request))
    upload = read_upload(request.META, holder)
    lock_store.require(upload.conditions, upload.holder.username, upload.target)
    try:
        space = _space(upload)
    except BaseException:
        inflight.end(upload.peer)
        raise
    if upload.chunked:
        return HttpResponse(status=403, headers={"X-Data-Status": "chunked", "X-Data-Class": size_class(space)})
    return HttpResponse(status=204)


def _space(upload: Upload) -> int:
    """Return how many bytes may come, beside what other uploads in flight will store. Raises what admit_write does.

    A body without a length reserves half of what a home has left, which the next ones see; in a dataset, whose size is
    reserved from its declaration on, nothing.
    """
    target, path = upload.target, upload.target.path
    place = f"{target.user}/{target.dataset}"
    if upload.length is not None or upload.part is not None:
        others = inflight.begin(upload.peer, [place], path, upload.length or 0)
        if upload.part is not None:
            return part.admit(target, upload.part, upload.length, others)[1]
        return admit_write(target, upload.length, held=lambda: others.at(place, path), reserved=others.coming)[1]
    dataset, space = admit_write(target, None)
    others = inflight.begin(upload.peer, [place], path, space // 2 if dataset is None else 0)
    if dataset is None and (space := space - others.at(place, path)) <= 0:
        admit_write(target, 1, held=lambda: others.at(place, path))  # refuses, unless one has ended meanwhile
    require_room(1, others.coming)
    return min(space, disk.room(tree.base()) - others.coming())


def size_class(space: int) -> str:
    """Return the smallest of nginx's locations for chunked bodies (1m, 4m, … 1024g) that holds `space` bytes."""
    mebi = 1
    while mebi << 20 < space and mebi < 1 << 20:
        mebi *= 4
    return f"{mebi}m" if mebi < 1024 else f"{mebi >> 10}g"
