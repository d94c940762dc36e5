"""PROPFIND (RFC 4918): listings for WebDAV clients and for the data client, which asks for checksums too.

The answer is streamed, so a listing of any length costs no memory. Called by verbs.py.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.sax.saxutils import escape, quoteattr

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.http import http_date

from accounts.models import User
from accounts.tokens import Holder
from kernel import downloads

from ..buckets import manifests
from ..models import Dataset, Lock, State
from . import lock_store, props, tree
from .admission import find_dataset, home_bytes, is_own, shared_datasets
from .errors import HttpError
from .lock_verbs import SUPPORTED, discovery
from .paths import HOME, Target, href
from .xml import read

DAV = "DAV:"
OURS = "urn:mlp:data"
SHA256 = f"{{{OURS}}}sha256"
STATE = f"{{{OURS}}}state"
LIVE = [
    f"{{{DAV}}}{name}"
    for name in ("displayname", "resourcetype", "getcontentlength", "getcontenttype", "getlastmodified", "getetag")
]
LOCKS = f"{{{DAV}}}lockdiscovery"
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot carry
Entry = tuple[tuple[str, ...], os.stat_result | None]  # steps below /data; None: a folder that is not on disk yet


def propfind(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Answer 207 with the properties of the target and of what is below it. Raises HttpError 400, 403, 404."""
    depth = request.META.get("HTTP_DEPTH", "infinity").strip().lower()
    if depth not in {"0", "1", "infinity"}:
        raise HttpError(400, "must be 0, 1 or infinity", field="Depth")
    if depth == "infinity" and not target.dataset:
        raise HttpError(403, "must be 0 or 1 here", field="Depth")
    asked = _asked(request.body)
    row, info = _resolve(target)
    entries = _entries(holder, target, row, info, depth)
    locks = lock_store.active(target) if LOCKS in asked.tags else []
    # the checksum of a single file is computed when requested by name; a listing has only those that are stored
    is_file = info is not None and stat.S_ISREG(info.st_mode) and not (row is not None and row.external)
    compute = depth == "0" and is_file and SHA256 in asked.tags
    body = _document(entries, asked, row, compute, locks)
    return StreamingHttpResponse(body, status=207, content_type='application/xml; charset="utf-8"')


def _resolve(target: Target) -> tuple[Dataset | None, os.stat_result | None]:
    """Return the dataset's row and the status of the file or folder. Raises HttpError 404."""
    if not target.dataset:
        if target.user and not User.objects.filter(username=target.user).exists():
            raise HttpError(404, "no such user or dataset", field="path")
        return None, None
    row = find_dataset(target)
    if row is not None and row.state == State.DELETING:
        raise HttpError(404, "no such user or dataset", field="path")
    external = row is not None and row.external
    info = manifests.status(row, target.path) if external else tree.status(target.steps)
    if target.parts and (info is None or (target.slash and stat.S_ISREG(info.st_mode))):
        raise HttpError(404, "no such file or folder", field="path")
    return row, info


def _entries(
    holder: Holder, target: Target, row: Dataset | None, info: os.stat_result | None, depth: str
) -> Iterator[Entry]:
    yield target.steps, info
    if depth == "0" or (info is not None and stat.S_ISREG(info.st_mode)):
        return
    if not target.user:
        if holder.is_administrator:
            names = User.objects.order_by("username").values_list("username", flat=True)
        else:
            names = dict.fromkeys([holder.username, *(owner for owner, _name in shared_datasets(holder))])
        for name in names:
            yield (name,), None
    elif not target.dataset and not is_own(holder, target):
        for owner, name in shared_datasets(holder, target.user):
            yield (owner, name), tree.status((owner, name))
    elif not target.dataset:
        shown = Dataset.kept.filter(user__username=target.user).exclude(state=State.DELETING).order_by("name")
        for name in [HOME, *shown.values_list("name", flat=True)]:
            yield (target.user, name), tree.status((target.user, name))
    elif row is not None and row.external:
        for parts, status in manifests.walk(row, target.path):
            if depth == "infinity" or len(parts) == 1:
                yield target.steps + parts, status
    elif info is not None:
        below = tree.walk(target.steps) if depth == "infinity" else _direct(target.steps)
        for parts, status in below:
            yield target.steps + parts, status


def _direct(steps: tuple[str, ...]) -> Iterator[Entry]:
    for name, info in tree.children(steps):
        yield (name,), info


@dataclass
class Requested:
    """The properties asked for; `all`: also those that clients have set; `names`: without values."""

    tags: list[str]
    all: bool = False
    names: bool = False


def _asked(body: bytes) -> Requested:
    """Parse the request's body; without one all properties are asked for. Raises HttpError 400."""
    if not body.strip():
        return Requested(LIVE, all=True)
    document = read(body, "propfind")
    asked = document.find(f"{{{DAV}}}prop")
    if asked is not None:
        return Requested([prop.tag for prop in asked if isinstance(prop.tag, str)][:100])
    more = document.find(f"{{{DAV}}}include")
    extra = [prop.tag for prop in more if isinstance(prop.tag, str)][:100] if more is not None else []
    return Requested(LIVE + extra, True, document.find(f"{{{DAV}}}propname") is not None)


def _document(entries: Iterator[Entry], asked: Requested, row, compute: bool, locks: list[Lock]) -> Iterator[str]:
    yield f'<?xml version="1.0" encoding="utf-8"?>\n<d:multistatus xmlns:d="{DAV}" xmlns:m="{OURS}">'
    asks_more = asked.all or any(not tag.startswith((f"{{{DAV}}}", f"{{{OURS}}}")) for tag in asked.tags)
    for steps, info in entries:
        present, missing = [], []
        dead = props.read_all(steps) if asks_more and info is not None and len(steps) > 2 else {}
        for tag in [*asked.tags, *dead] if asked.all else asked.tags:
            value = _value(tag, steps, info, row, compute)
            if tag == LOCKS:
                value = discovery(locks, Target(*steps[:2], steps[2:]))
            if tag in dead:
                present.append(_element(tag, "") if asked.names else dead[tag])
            elif value is None:
                missing.append(_element(tag, ""))
            else:
                present.append(_element(tag, "" if asked.names else value))
        folder = info is None or stat.S_ISDIR(info.st_mode)
        yield f"\n<d:response><d:href>{escape(href(*steps, folder=folder))}</d:href>"
        yield from _propstat(present, "200 OK") if present or not missing else ()
        yield from _propstat(missing, "404 Not Found") if missing and not asked.names else ()
        yield "</d:response>"
    yield "\n</d:multistatus>\n"


def _propstat(elements: list[str], status: str) -> Iterator[str]:
    yield f"<d:propstat><d:prop>{''.join(elements)}</d:prop><d:status>HTTP/1.1 {status}</d:status></d:propstat>"


def _element(tag: str, content: str) -> str:
    namespace, _, name = tag.rpartition("}")
    namespace = namespace.lstrip("{")
    prefix = {DAV: "d:", OURS: "m:"}.get(namespace)
    if prefix is None:
        opening = f"<{name} xmlns={quoteattr(namespace)}"
        prefix = ""
    else:
        opening = f"<{prefix}{name}"
    return f"{opening}>{content}</{prefix}{name}>" if content else f"{opening}/>"


def _value(tag: str, steps: tuple[str, ...], info: os.stat_result | None, row, compute: bool) -> str | None:
    """Return the property's content as XML, None when this resource does not have it."""
    file = info is not None and stat.S_ISREG(info.st_mode)
    match tag.removeprefix(f"{{{DAV}}}"):
        case "displayname":
            return escape(NOT_XML.sub("?", steps[-1])) if steps else "data"
        case "resourcetype":
            return "" if file else "<d:collection/>"
        case "getlastmodified":
            return http_date(info.st_mtime) if info is not None else None
        case "creationdate":
            return datetime.fromtimestamp(info.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if info else None
        case "getcontentlength":
            return str(info.st_size) if file else None
        case "getcontenttype":
            return "application/octet-stream" if file else None
        case "getetag":
            return downloads.etag(info) if file else None
        case "supportedlock":
            return SUPPORTED if len(steps) > 1 else None
        case "quota-used-bytes" | "quota-available-bytes" as quota:
            return _quota(quota, steps, row) if not file else None
    if tag == STATE:
        return str(row.state) if row is not None else None
    if tag == SHA256 and file:
        return tree.sha256(steps) if compute else tree.known_sha256(steps)
    return None


def _quota(which: str, steps: tuple[str, ...], row: Dataset | None) -> str | None:
    if row is not None:
        used, limit = row.stored, row.size
    elif steps[1:2] == (HOME,):
        used, limit = home_bytes(steps[0]), settings.DATA_HOME_LIMIT
    else:
        return None
    return str(used if which == "quota-used-bytes" else max(0, limit - used))
