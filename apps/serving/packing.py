"""The packed bodies of requests (Content-Encoding), which are unpacked before anything else reads them."""

from __future__ import annotations

import zlib

from values import BadRequest, TooLarge, UnknownCoding

GZIP, RAW = 16 + zlib.MAX_WBITS, -zlib.MAX_WBITS


def unpacked(body: bytes, coding: str, most: int) -> bytes:
    """Return a body without its encoding. Raises BadRequest, TooLarge beyond `most` bytes, UnknownCoding."""
    codings = [name.strip().lower() for name in coding.split(",")]
    codings = [coding for coding in codings if coding not in ("", "identity")]
    if not codings:
        return body
    if codings[0] not in ("gzip", "x-gzip", "deflate") or len(codings) > 1:
        raise UnknownCoding(f"Content-Encoding: gzip and deflate are taken, not {', '.join(codings)}")
    if codings[0] != "deflate":
        return _inflated(body, GZIP, most, members=True)
    zlibs = len(body) > 1 and body[0] & 15 == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
    return _inflated(body, zlib.MAX_WBITS if zlibs else RAW, most)  # raw is what some clients call deflate


def _inflated(body: bytes, window: int, most: int, members: bool = False) -> bytes:
    unpacked, rest = bytearray(), body
    while True:
        unpacker = zlib.decompressobj(window)
        try:
            unpacked += unpacker.decompress(rest, most + 1 - len(unpacked))
        except zlib.error as problem:
            raise BadRequest(f"body: not packed as Content-Encoding says ({problem})")
        if len(unpacked) > most:
            raise TooLarge(f"body: too large, at most {most >> 20} MiB unpacked")
        if not unpacker.eof:
            raise BadRequest("body: the packed data are cut off")
        rest = unpacker.unused_data
        if not rest:
            return bytes(unpacked)
        if not members:
            raise BadRequest("body: bytes follow the packed data")
