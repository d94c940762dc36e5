"""XML that clients send: read without document types, hence without entities. Used by propfind, props, lock_verbs."""

from __future__ import annotations

from xml.etree import ElementTree

from kernel.messages import Message

from .errors import HttpError

DAV = "{DAV:}"
DEPTH_LIMIT = 100  # elements within elements; the documents of RFC 4918 have five


class _Builder(ElementTree.TreeBuilder):
    """Refuses a document type, and a document that is nested too deeply, while it is read: walking such a tree would
    exhaust the stack.
    """

    depth = 0

    def doctype(self, *_identifiers) -> None:
        """Refuse it, in whatever encoding it is written."""
        raise HttpError(400, "must be XML without a document type", field="body")

    def start(self, tag: str, attributes: dict) -> ElementTree.Element:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise HttpError(
                400, Message("must not nest elements more than %(depth)s deep", depth=DEPTH_LIMIT), field="body"
            )
        return super().start(tag, attributes)

    def end(self, tag: str) -> ElementTree.Element:
        self.depth -= 1
        return super().end(tag)


def read(body: bytes, name: str) -> ElementTree.Element:
    """Parse the document, which must be a `DAV: {name}`, and return its root. Raises HttpError 400."""
    try:
        document = ElementTree.fromstring(body, ElementTree.XMLParser(target=_Builder()))
    except (ElementTree.ParseError, ValueError, LookupError):
        raise HttpError(400, "must be XML", field="body")
    if document.tag != DAV + name:
        raise HttpError(400, Message("must be a DAV: %(name)s", name=name), field="body")
    return document
