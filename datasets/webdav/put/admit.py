"""May this upload be? nginx asks before it reads the body, so a refused upload is refused before it is sent."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from accounts.throttle import client_address
from kernel import storage

from .. import inflight, lock_store
from ..admission import admit_write
from ..gate import authenticate, for_subrequest, guarded
from . import part
from .upload import read_upload


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
    if upload.part is None:
        dataset, space = admit_write(upload.target, upload.length)
    else:
        dataset, space = part.admit(upload.target, upload.part, upload.length)
    if dataset is not None:
        inflight.begin(upload.peer, dataset.pk, upload.length)
    if upload.chunked:
        return HttpResponse(status=403, headers={"X-Data-Status": "chunked", "X-Data-Class": size_class(space)})
    return HttpResponse(status=204)


def size_class(space: int) -> str:
    """Return the smallest of nginx's locations for chunked bodies (1m, 4m, … 1024g) that holds `space` bytes."""
    mebi = 1
    while mebi << 20 < space and mebi < 1 << 20:
        mebi *= 4
    return f"{mebi}m" if mebi < 1024 else f"{mebi >> 10}g"
