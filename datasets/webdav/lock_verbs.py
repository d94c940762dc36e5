"""LOCK and UNLOCK (RFC 4918, 9.10 and 9.11). Called by verbs.py."""

from __future__ import annotations

import os
import stat
import uuid
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from django.http import HttpRequest, HttpResponse

from accounts.models import User
from accounts.tokens import Holder

from ..models import Lock
from . import lock_store, tree
from .admission import writing
from .errors import HttpError
from .paths import Target, href
from .xml import DAV, read

OWNER_LIMIT = 1000
SUPPORTED = "".join(
    f"<d:lockentry><d:lockscope><d:{scope}/></d:lockscope><d:locktype><d:write/></d:locktype></d:lockentry>"
    for scope in ("exclusive", "shared")
)


def lock(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Locks a file, or a folder with or without what is in it; a name that is free becomes an empty file."""
    if not target.dataset:
        raise HttpError(403, "path: files, folders and datasets can be locked")
    body = request.body
    if not body.strip():
        return _renew(request, holder, target)
    wanted = read(body, "lockinfo")
    exclusive = wanted.find(f"{DAV}lockscope/{DAV}exclusive") is not None
    if not exclusive and wanted.find(f"{DAV}lockscope/{DAV}shared") is None:
        raise HttpError(400, "body: lockscope must be exclusive or shared")
    if wanted.find(f"{DAV}locktype/{DAV}write") is None:
        raise HttpError(400, "body: locktype must be write")
    depth = request.META.get("HTTP_DEPTH", "infinity").strip().lower()
    if depth not in {"0", "infinity"}:
        raise HttpError(400, "Depth: must be 0 or infinity")
    with writing(target):
        deep = depth == "infinity"
        for other in lock_store.in_the_way(target, lock_store.living(target), below=deep):
            if (exclusive or other.exclusive) and (lock_store.covers(other, target.path) or deep):
                raise HttpError(423, f"path: is locked by {other.holder} until {other.expires:%H:%M:%S} UTC")
        made = _make(request, holder, target)
        row = Lock.objects.create(
            token=f"{lock_store.SCHEME}{uuid.uuid4()}",
            user=User.objects.get(username=target.user),
            dataset=target.dataset,
            path=target.path,
            holder=holder.username,
            exclusive=exclusive,
            deep=deep,
            owner=_owner(wanted),
            expires=lock_store.ending(request),
        )
    return _told(row, target, 201 if made else 200)


def unlock(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    token = request.META.get("HTTP_LOCK_TOKEN", "").strip()
    if not (token.startswith("<") and token.endswith(">")):
        raise HttpError(400, "Lock-Token: must be <token>")
    for row in lock_store.living(target):
        if row.token == token[1:-1] and lock_store.covers(row, target.path):
            if row.holder != holder.username and not holder.is_staff:
                raise HttpError(403, f"Lock-Token: the lock is {row.holder}'s")
            row.delete()
            return HttpResponse(status=204)
    raise HttpError(409, "Lock-Token: there is no such lock here")


def discovery(found: list[Lock], target: Target) -> str:
    """The content of `lockdiscovery` of what lies there."""
    return "".join(_active(row) for row in found if lock_store.covers(row, target.path))


def _renew(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    shown = set(lock_store.TOKEN.findall(request.META.get("HTTP_IF", "")))
    for row in lock_store.living(target):
        if row.token in shown and lock_store.covers(row, target.path) and row.holder == holder.username:
            row.expires = lock_store.ending(request)
            row.save(update_fields=["expires"])
            return _told(row, target, 200)
    raise HttpError(412, "If: must name a lock on this path to be renewed")


def _make(request: HttpRequest, holder: Holder, target: Target) -> bool:
    """An empty file where nothing is. Raises HttpError 409 where its folder is missing."""
    if not target.parts:
        return False
    info = tree.look(target.steps)
    if info is not None:
        if target.slash and stat.S_ISREG(info.st_mode):
            raise HttpError(404, "path: no such folder")
        return False
    lock_store.must_hold(request, holder.username, target)
    try:
        with tree.folder(target.steps[:-1], make=len(target.parts) == 1) as parent:
            os.close(os.open(target.steps[-1], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=parent))
    except FileNotFoundError:
        raise HttpError(409, "path: its folder is missing")
    return True


def _owner(wanted: ElementTree.Element) -> str:
    """What the client says of itself, shown to others as it is."""
    owner = wanted.find(f"{DAV}owner")
    if owner is None:
        return ""
    inner = escape(owner.text or "") + "".join(ElementTree.tostring(child, "unicode") for child in owner)
    return inner if len(inner) <= OWNER_LIMIT else ""


def _told(row: Lock, target: Target, status: int) -> HttpResponse:
    body = f'<?xml version="1.0" encoding="utf-8"?>\n<d:prop xmlns:d="DAV:"><d:lockdiscovery>{_active(row)}'
    response = HttpResponse(f"{body}</d:lockdiscovery></d:prop>\n", status=status)
    response["Content-Type"] = 'application/xml; charset="utf-8"'
    response["Lock-Token"] = f"<{row.token}>"
    return response


def _active(row: Lock) -> str:
    steps = (row.user.username, row.dataset, *(row.path.split("/") if row.path else ()))
    left = max(0, int((row.expires - lock_store.timezone.now()).total_seconds()))
    scope, depth = "exclusive" if row.exclusive else "shared", "infinity" if row.deep else "0"
    return (
        f"<d:activelock><d:locktype><d:write/></d:locktype><d:lockscope><d:{scope}/></d:lockscope>"
        f"<d:depth>{depth}</d:depth><d:owner>{row.owner}</d:owner><d:timeout>Second-{left}</d:timeout>"
        f"<d:locktoken><d:href>{row.token}</d:href></d:locktoken>"
        f"<d:lockroot><d:href>{escape(href(*steps))}</d:href></d:lockroot></d:activelock>"
    )
