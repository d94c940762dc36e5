"""Content-Encoding of bodies of log lines and spans: unpacked up to a bound, whatever the sender has packed."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable

import cramjam

MAX_BYTES = 32 << 20  # of an unpacked body
ACCEPTED = "gzip, deflate, zstd, snappy"
SNAPPY_FRAMES = b"\xff\x06\x00\x00sNaPpY"


class UnknownCoding(Exception):
    """No decoder for this Content-Encoding."""


class TooLarge(ValueError):
    def __init__(self):
        super().__init__(f"it has more than {MAX_BYTES >> 20} MiB unpacked")


def unpacked(data: bytes, header: str) -> bytes:
    """Return the body as it was before the codings that the header names. Raises ValueError, UnknownCoding."""
    names = [name.strip().lower() for name in header.split(",")]
    codings = [name for name in names if name not in {"", "identity"}]
    for name in reversed(codings):
        if name not in DECODERS or len(codings) > 2:
            raise UnknownCoding(name)
        data = DECODERS[name](data)
    return data


def _gzip(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpack:
            return _bounded(unpack.read(MAX_BYTES + 1))
    except (zlib.error, gzip.BadGzipFile, EOFError) as problem:
        raise ValueError(f"no gzip: {problem}") from None


def _deflate(data: bytes) -> bytes:
    """Return the content of a zlib stream, or of a bare one, as some clients send it."""
    for form in (zlib.MAX_WBITS, -zlib.MAX_WBITS):
        unpack = zlib.decompressobj(form)
        try:
            plain = _bounded(unpack.decompress(data, MAX_BYTES + 1))
        except zlib.error:
            continue
        if unpack.eof:
            return plain
    raise ValueError("no deflate, or it ends too early")


def _bounded(plain: bytes) -> bytes:
    if len(plain) > MAX_BYTES:
        raise TooLarge
    return plain


def _zstd(data: bytes) -> bytes:
    room = bytearray(MAX_BYTES + 1)
    try:
        length = cramjam.zstd.decompress_into(data, room)
    except cramjam.DecompressionError as problem:
        if "whole buffer" in str(problem):
            raise TooLarge from None
        raise ValueError(f"no zstd: {problem}") from None
    return _bounded(bytes(memoryview(room)[:length]))


def snappy(data: bytes) -> bytes:
    """Return the content of a snappy block, or of a stream of frames. Raises ValueError."""
    try:
        if data.startswith(SNAPPY_FRAMES):
            room = bytearray(MAX_BYTES + 1)
            return bytes(memoryview(room)[: cramjam.snappy.decompress_into(data, room)])
        if cramjam.snappy.decompress_raw_len(data) > MAX_BYTES:
            raise TooLarge
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as problem:
        raise (TooLarge() if "whole buffer" in str(problem) else ValueError(f"no snappy block: {problem}")) from None


DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zlib": _deflate,
    "zstd": _zstd,
    "snappy": snappy,
    "x-snappy-framed": snappy,
}
