"""The type of a user's file, by its first bytes and never by its name: an image and its size in pixels, or audio.

Nothing is decoded here. A browser decodes an image of any size that it is sent, so the size is checked before. SVG is
not supported, since it may contain scripts.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
SOUNDS = {b"OggS": "audio/ogg", b"fLaC": "audio/flac", b"ID3": "audio/mpeg"} | {
    bytes([0xFF, second]): "audio/mpeg" for second in (0xFB, 0xF3, 0xF2)
}
MAX_PIXELS = 40_000_000
HEAD = 256 << 10  # bytes in which the size of a JPEG is looked for


def image_kind(file: BinaryIO) -> str:
    """Return the image's media type; "" for anything else."""
    head = os.pread(file.fileno(), 16, 0)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in IMAGES.items() if head.startswith(magic)), "")


def sound_kind(file: BinaryIO) -> str:
    """Return the media type of audio; "" for anything else."""
    head = os.pread(file.fileno(), 16, 0)
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    return next((kind for magic, kind in SOUNDS.items() if head.startswith(magic)), "")


def image_size(file: BinaryIO) -> tuple[int, int] | None:
    """Return the width and height in the image's header; None if it has none."""
    kind = image_kind(file)
    head = os.pread(file.fileno(), HEAD if kind == "image/jpeg" else 64, 0)
    try:
        size = _READERS[kind](head) if kind else None
    except (struct.error, IndexError):
        return None
    return size if size and min(size) > 0 else None


def is_showable(file: BinaryIO) -> bool:
    """Return whether the image may be sent to a browser: whether it is not too large to decode.

    Decoders reject an image without a size, except a JPEG, whose size may be beyond the bytes that are read here.
    """
    size = image_size(file)
    return image_kind(file) != "image/jpeg" if size is None else size[0] * size[1] <= MAX_PIXELS


def _png(head: bytes) -> tuple[int, int] | None:
    return struct.unpack(">II", head[16:24]) if head[12:16] == b"IHDR" else None


def _gif(head: bytes) -> tuple[int, int]:
    return struct.unpack("<HH", head[6:10])


def _webp(head: bytes) -> tuple[int, int] | None:
    form = head[12:16]
    if form == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if form == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if form == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Return the size from the first frame header; segments before it (EXIF, profiles) are skipped."""
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        elif marker in (0x01, 0xD8) or 0xD0 <= marker <= 0xD7:
            at += 2
        else:
            at += 2 + max(2, struct.unpack(">H", head[at + 2 : at + 4])[0])
    return None


_READERS = {"image/png": _png, "image/gif": _gif, "image/webp": _webp, "image/jpeg": _jpeg}
