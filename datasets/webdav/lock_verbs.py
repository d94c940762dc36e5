"""The methods LOCK and UNLOCK (RFC 4918, 9.10 and 9.11), and how locks look as XML. Called by verbs.py, propfind.py."""

from __future__ import annotations

import os
import stat
import uuid
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from accounts.models import User
from accounts.tokens import Holder
from kernel.messages import Message

from ..models import Lock
from . import conditions, lock_store, tree
from .admission import writing
from .conditions import Conditions
from .errors import HttpError
from .paths import Target, href
from .xml import DAV, read

OWNER_LIMIT = 1000
SUPPORTED = "".join(
    f"<d:lockentry><d:lockscope><d:{scope}/></d:lockscope><d:locktype><d:write/></d:locktype></d:lockentry>"
    for scope in ("exclusive", "shared")
)


def lock(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Lock a file, or a folder with or without its content; a name that is free becomes an empty file.

    Without a body the lock that the `If` header names is renewed.
    """
    if not target.dataset:
        raise HttpError(403, "only files, folders and datasets can be locked", field="path")
    requested, body = conditions.parse(request.META), request.body
    if not body.strip():
        return _renew(request, requested, holder, target)
    info = read(body, "lockinfo")
    exclusive = _is_exclusive(info)
    depth = request.META.get("HTTP_DEPTH", "infinity").strip().lower()
    if depth not in {"0", "infinity"}:
        raise HttpError(400, "must be 0 or infinity", field="Depth")
    deep = depth == "infinity"
    with writing(target):
        for other in lock_store.conflicting(target, deep=deep):
            if exclusive or other.exclusive:
                raise lock_store.is_locked(other)
        created = _create_file(requested, holder, target)
        row = Lock.objects.create(
            token=f"{conditions.LOCK_SCHEME}{uuid.uuid4()}",
            user=User.objects.get(username=target.user),
            dataset=target.dataset,
            path=target.path,
            holder=holder.username,
            exclusive=exclusive,
            deep=deep,
            owner=_owner(info),
            expires=lock_store.expiry(request.META.get("HTTP_TIMEOUT", "")),
        )
    return _lock_response(row, 201 if created else 200)


def unlock(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Remove the lock that the Lock-Token header names; only its holder and operators may."""
    token = request.META.get("HTTP_LOCK_TOKEN", "").strip()
    if not (token.startswith("<") and token.endswith(">")):
        raise HttpError(400, "must be <token>", field="Lock-Token")
    for row in lock_store.active(target):
        if row.token == token[1:-1] and lock_store.covers(row, target.path):
            if row.holder != holder.username and not holder.is_administrator:
                raise HttpError(403, Message("the lock belongs to %(holder)s", holder=row.holder), field="Lock-Token")
            row.delete()
            return HttpResponse(status=204)
    raise HttpError(409, "this path has no such lock", field="Lock-Token")


def discovery(locks: list[Lock], target: Target) -> str:
    """Return the content of the property `lockdiscovery` of the target."""
    return "".join(_active_lock(row) for row in locks if lock_store.covers(row, target.path))


def _is_exclusive(info: ElementTree.Element) -> bool:
    """Return whether an exclusive lock is requested, rather than a shared one. Raises HttpError 400."""
    exclusive = info.find(f"{DAV}lockscope/{DAV}exclusive") is not None
    if not exclusive and info.find(f"{DAV}lockscope/{DAV}shared") is None:
        raise HttpError(400, "lockscope must be exclusive or shared", field="body")
    if info.find(f"{DAV}locktype/{DAV}write") is None:
        raise HttpError(400, "locktype must be write", field="body")
    return exclusive


def _renew(request: HttpRequest, requested: Conditions, holder: Holder, target: Target) -> HttpResponse:
    for row in lock_store.active(target):
        if row.token in requested.tokens and lock_store.covers(row, target.path) and row.holder == holder.username:
            row.expires = lock_store.expiry(request.META.get("HTTP_TIMEOUT", ""))
            row.save(update_fields=["expires"])
            return _lock_response(row, 200)
    raise HttpError(412, "must name the lock on this path that is to be renewed", field="If")


def _create_file(requested: Conditions, holder: Holder, target: Target) -> bool:
    """Create an empty file where nothing is; return whether it did. Raises HttpError 409 without its folder."""
    if not target.parts:
        return False
    info = tree.status(target.steps)
    if info is not None:
        if target.slash and stat.S_ISREG(info.st_mode):
            raise HttpError(404, "no such folder", field="path")
        return False
    lock_store.require(requested, holder.username, target)
    try:
        with tree.folder(target.steps[:-1], make=len(target.parts) == 1) as parent:
            os.close(os.open(target.steps[-1], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=parent))
    except FileNotFoundError:
        raise HttpError(409, "the parent folder does not exist", field="path")
    return True


def _owner(info: ElementTree.Element) -> str:
    """Return what the client says about itself, as XML; others see it unchanged."""
    owner = info.find(f"{DAV}owner")
    if owner is None:
        return ""
    inner = escape(owner.text or "") + "".join(ElementTree.tostring(child, "unicode") for child in owner)
    return inner if len(inner) <= OWNER_LIMIT else ""


def _lock_response(row: Lock, status: int) -> HttpResponse:
    body = f'<?xml version="1.0" encoding="utf-8"?>\n<d:prop xmlns:d="DAV:"><d:lockdiscovery>{_active_lock(row)}'
    response = HttpResponse(f"{body}</d:lockdiscovery></d:prop>\n", status=status)
    response["Content-Type"] = 'application/xml; charset="utf-8"'
    response["Lock-Token"] = f"<{row.token}>"
    return response


def _active_lock(row: Lock) -> str:
    steps = (row.user.username, row.dataset, *(row.path.split("/") if row.path else ()))
    left = max(0, int((row.expires - timezone.now()).total_seconds()))
    scope, depth = "exclusive" if row.exclusive else "shared", "infinity" if row.deep else "0"
    return (
        f"<d:activelock><d:locktype><d:write/></d:locktype><d:lockscope><d:{scope}/></d:lockscope>"
        f"<d:depth>{depth}</d:depth><d:owner>{row.owner}</d:owner><d:timeout>Second-{left}</d:timeout>"
        f"<d:locktoken><d:href>{row.token}</d:href></d:locktoken>"
        f"<d:lockroot><d:href>{escape(href(*steps))}</d:href></d:lockroot></d:activelock>"
    )
