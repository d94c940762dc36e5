"""One PUT as a value: its caller judged once, its headers parsed once. admit.py, store.py and batch.py read it.

nginx sends the headers that matter and adds its own: `X-Data-Uri`, `X-Data-Length`, `X-Data-Chunked`, `X-Data-Peer`,
and `X-Data-File` once it has spooled the body (supervision/data.conf.tmpl). A small body comes with the request; then
`X-Data-File` is INLINE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from accounts.tokens import Holder
from kernel.effects import SUBMIT

from .. import conditions
from ..admission import require_owner, require_scope
from ..conditions import Conditions
from ..errors import HttpError
from ..paths import Target, parse

RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18})")
DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
# In the place of the path: the body has come with the request. In a rolling upgrade an older process, which would take
# that for an upload without a body, finds no such file and asks to try again.
INLINE = "-"


@dataclass(frozen=True)
class Part:
    """`length` bytes from byte `first` on, of a file of `total` bytes. Length 0 only asks how much has arrived."""

    first: int
    length: int
    total: int


@dataclass(frozen=True)
class Upload:
    """A PUT of one file, or of one part of it.

    holder      whose token it is; judged by gate.authenticate when the request came
    target      the file's address; the holder may write there
    part        for `Content-Range`: which bytes of the file come
    conditions  `If`, `If-Match` and `If-None-Match`
    digest      `Repr-Digest` as `sha-256=:{base64}:`; empty when none was sent
    length      bytes of the body; None when the client has not declared it
    chunked     the body comes with `Transfer-Encoding: chunked`
    peer        the client's connection, `{address}:{port}>{our port}`
    spooled     path of the body that nginx has written; empty before that, and where it has written none
    body        a small body itself, which nginx has not written
    """

    holder: Holder
    target: Target
    part: Part | None
    conditions: Conditions
    digest: str
    length: int | None
    chunked: bool
    peer: str
    spooled: str
    body: bytes = b""


def read_upload(meta: Mapping[str, str], holder: Holder, body: bytes = b"") -> Upload:
    """Return the upload that the headers in `meta` (names as WSGI has them) describe. Raises HttpError."""
    target = parse(meta.get("HTTP_X_DATA_URI", ""))
    spooled = meta.get("HTTP_X_DATA_FILE", "")
    require_scope(holder, target, SUBMIT)
    require_owner(holder, target)
    if not target.parts or target.slash:
        raise HttpError(405, "must be a file: /data/{user}/{dataset}/{file}", field="path")
    if meta.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        raise HttpError(415, "is not supported; upload the file unencoded", field="Content-Encoding")
    length = meta.get("HTTP_X_DATA_LENGTH", "")
    return Upload(
        holder=holder,
        target=target,
        part=_part(meta.get("HTTP_CONTENT_RANGE", "").strip()),
        conditions=conditions.parse(meta),
        digest=_digest(meta.get("HTTP_REPR_DIGEST", "")),
        length=int(length) if length.isascii() and length.isdigit() else None,
        chunked="chunked" in meta.get("HTTP_X_DATA_CHUNKED", "").lower(),
        peer=meta.get("HTTP_X_DATA_PEER", ""),
        spooled="" if spooled == INLINE else spooled,
        body=body,
    )


def _part(header: str) -> Part | None:
    """Return the part that a Content-Range names, None without the header. Raises HttpError 400."""
    if not header:
        return None
    match = RANGE.fullmatch(header)
    if match is None:
        raise HttpError(
            400, "must be bytes {first}-{last}/{total}, or bytes */{total} to query the offset", field="Content-Range"
        )
    if match[1] is None:
        return Part(0, 0, int(match[3]))
    first, last, total = (int(number) for number in match.groups())
    if not first <= last < total:
        raise HttpError(400, "must be a range within the file", field="Content-Range")
    return Part(first, last - first + 1, total)


def _digest(header: str) -> str:
    """Return the SHA-256 of a Repr-Digest (RFC 9530), "" without the header. Raises HttpError 400."""
    if not header:
        return ""
    match = DIGEST.search(header)
    if match is None:
        raise HttpError(400, "must be sha-256=:{base64}:", field="Repr-Digest")
    return match[0]
