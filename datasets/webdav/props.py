"""PROPPATCH, and the properties that clients set on files: an extended attribute of the file or folder itself, so that
they move and vanish with it. Called by verbs.py; propfind.py shows them, put/ carries them over to the new bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from django.http import HttpRequest, HttpResponse

from accounts.tokens import Holder
from kernel.messages import Message

from . import conditions, lock_store, tree
from .admission import writing
from .errors import HttpError
from .paths import Target, href
from .xml import DAV, read

LIMIT = 3000  # bytes of all properties of a file: file systems limit extended attributes
OURS = ("{DAV:}", "{urn:mlp:data}")


def proppatch(request: HttpRequest, holder: Holder, target: Target) -> HttpResponse:
    """Set and remove properties, all of them or none. Raises HttpError 400, 403, 404, 412, 423 or 507."""
    document = read(request.body, "propertyupdate")
    changes = list(_changes(document))
    if not target.parts:
        raise HttpError(403, "only files and folders have properties that can be set", field="path")
    refused = {tag for tag, _ in changes if tag.startswith(OURS)}
    with writing(target):
        lock_store.require(conditions.parse(request.META), holder.username, target)
        if tree.status(target.steps) is None:
            raise HttpError(404, "no such file or folder", field="path")
        if not refused:
            properties = read_all(target.steps)
            for tag, element in changes:
                properties.pop(tag, None)
                if element is not None:
                    properties[tag] = element
            _write(target.steps, properties)
    return _multistatus(target, [tag for tag, _ in changes], refused)


def read_all(steps: tuple[str, ...]) -> dict[str, str]:
    """Return the properties that clients have set, as {tag: element as XML}; empty where there are none."""
    with contextlib.suppress(OSError, ValueError), _opened(steps) as file:
        return json.loads(os.getxattr(file, tree.PROPERTIES))
    return {}


def _write(steps: tuple[str, ...], values: dict[str, str]) -> None:
    text = json.dumps(values, ensure_ascii=False).encode()
    if len(text) > LIMIT:
        raise HttpError(
            507, Message("all properties of a file must have at most %(limit)s bytes", limit=LIMIT), field="body"
        )
    with _opened(steps) as file:
        try:
            os.setxattr(file, tree.PROPERTIES, text)
        except OSError:
            raise HttpError(507, "the platform's file system does not support properties", field="body")


@contextmanager
def _opened(steps: tuple[str, ...]) -> Iterator[int]:
    with tree.folder(steps[:-1]) as parent:
        file = os.open(steps[-1], tree.FILE, dir_fd=parent)
    try:
        yield file
    finally:
        os.close(file)


def _changes(document: ElementTree.Element) -> Iterator[tuple[str, str | None]]:
    """Yield (tag, element as XML), or (tag, None) for a property to remove, in the document's order."""
    for step in document:
        if step.tag not in {f"{DAV}set", f"{DAV}remove"}:
            continue
        for prop in step.iterfind(f"{DAV}prop"):
            for element in prop:
                element.tail = None
                yield element.tag, ElementTree.tostring(element, "unicode") if step.tag == f"{DAV}set" else None


def _multistatus(target: Target, tags: list[str], refused: set[str]) -> HttpResponse:
    groups: dict[str, list[str]] = {}
    for tag in dict.fromkeys(tags):
        status = "200 OK" if not refused else "403 Forbidden" if tag in refused else "424 Failed Dependency"
        groups.setdefault(status, []).append(ElementTree.tostring(ElementTree.Element(tag), "unicode"))
    propstats = "".join(
        f"<d:propstat><d:prop>{''.join(elements)}</d:prop><d:status>HTTP/1.1 {status}</d:status></d:propstat>"
        for status, elements in groups.items()
    )
    body = '<?xml version="1.0" encoding="utf-8"?>\n<d:multistatus xmlns:d="DAV:"><d:response>'
    body += f"<d:href>{escape(href(*target.steps))}</d:href>{propstats}</d:response></d:multistatus>\n"
    return HttpResponse(body, status=207, content_type='application/xml; charset="utf-8"')
