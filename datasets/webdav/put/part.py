"""A large file in parts: PUT with `Content-Range: bytes {first}-{last}/{total}` to the file's own address, in order.

A part is answered by 202 and `Upload-Offset`, the bytes that have arrived; one that begins elsewhere by 409;
`Content-Range: bytes */{total}` without a body only asks. With the last part the file appears, as with any PUT.
unfinished.py keeps what has arrived.
"""

from __future__ import annotations

from pathlib import Path

from kernel.messages import Message

from ...models import Dataset
from .. import inflight, unfinished
from ..admission import admit_write, find_dataset, must_be_creating
from ..errors import HttpError
from ..paths import Target
from .upload import Part, Upload


def admit(
    target: Target, part: Part, length: int | None, others: inflight.Others = inflight.NONE
) -> tuple[Dataset | None, int]:
    """Check a part of `length` bytes as `admit_write` does a whole file, and return what it returns. Raises HttpError.

    The space must hold the whole file, beside the dataset's other unfinished ones; the disk only what comes now.
    """
    if length is None:
        raise HttpError(411, "is required for a part", field="Content-Length")
    if length != part.length:
        raise HttpError(
            400,
            Message("declares %(named)s bytes, but Content-Length is %(length)s", named=part.length, length=length),
            field="Content-Range",
        )
    place = f"{target.user}/{target.dataset}"
    admitted = admit_write(
        target, part.total, held=lambda: others.at(place, target.path) + unfinished.bytes_of_others(target),
        coming=part.length, reserved=others.coming,
    )  # fmt: skip
    unfinished.require_next(target, part.first, part.total)
    return admitted


def append(upload: Upload, part: Part, body: Path) -> Path | None:
    """Add the spooled part to its file; return the file once it is complete. Raises HttpError, OSError."""
    size = body.stat(follow_symlinks=False).st_size
    admit(upload.target, part, size)
    completed = unfinished.append(upload.target, part.first, part.total, body, size)
    inflight.end(upload.peer)
    return completed


def ask(upload: Upload, part: Part) -> Path | None:
    """Return the file when it is complete but, after a kill, not in its place yet. Raises HttpError 404 or 409."""
    must_be_creating(find_dataset(upload.target))
    return unfinished.completed(upload.target, part.total)
