"""XML that clients send: read without document types, hence without entities. Used by propfind, props and locking."""

from __future__ import annotations

from xml.etree import ElementTree

from .paths import Answer

DAV = "{DAV:}"


def read(body: bytes, name: str) -> ElementTree.Element:
    """The document, which must be a `DAV: {name}`. Raises Answer 400."""
    if b"<!" in body:
        raise Answer(400, "body: must be XML without a document type")
    try:
        document = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError):
        raise Answer(400, "body: must be XML")
    if document.tag != DAV + name:
        raise Answer(400, f"body: must be a DAV: {name}")
    return document
