"""Protobuf messages read piece by piece: one log record or span at a time becomes objects, whatever a body holds.

An empty element takes two bytes in a body and fifty times as many in memory, so that parsing a body as a whole would
fill it. Here only the fields that lead to the records are walked, as they are on the wire:
https://protobuf.dev/programming-guides/encoding/. Everything that cannot be read raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_PIECES = 50_000  # nested messages in a body
MAX_RECORDS = 250_000  # records, of which one at a time is in memory
MAX_BYTES = 4 << 20  # of one record
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
SKIPPED = {FIXED64: 8, FIXED32: 4}


class Pieces:
    """The elements of one body, counted while they are walked."""

    def __init__(self) -> None:
        self.count = self.records = 0

    def of(self, data: memoryview, *, records: bool = False) -> Iterator[tuple[int, memoryview]]:
        """Yield (number, content) of each field of the message that has a length, in order; `records` where they are
        records, which the caller does not keep.
        """
        at, end = 0, len(data)
        while at < end:
            tag, at = _varint(data, at)
            kind = tag & 7
            if kind == BYTES:
                length, at = _varint(data, at)
                self._add(length, end - at, records)
                yield tag >> 3, data[at : at + length]
                at += length
            elif kind == VARINT:
                _, at = _varint(data, at)
            elif kind in SKIPPED:
                at += SKIPPED[kind]
            else:
                raise ValueError(f"a field of the kind {kind} is unknown")
        if at > end:
            raise ValueError("it ends in the middle of a field")

    def record(self, data: memoryview) -> bytes:
        """Return the content of a record, whose fields are not counted."""
        if len(data) > MAX_BYTES:
            raise ValueError(f"a record has more than {MAX_BYTES >> 20} MiB")
        return bytes(data)

    def _add(self, length: int, left: int, records: bool) -> None:
        if length > left:
            raise ValueError("it ends in the middle of a field")
        self.records += records
        self.count += not records
        if self.records > MAX_RECORDS:
            raise ValueError(f"it has more than {MAX_RECORDS} records")
        if self.count > MAX_PIECES:
            raise ValueError(f"it has more than {MAX_PIECES} groups of records")


def fields(data: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yield (number, the whole field, its content) of each field of a record, as far as it can be read; the content of
    one without a length is empty.
    """
    at = 0
    try:
        while at < len(data):
            begin = at
            tag, at = _varint(data, at)
            kind = tag & 7
            length = SKIPPED.get(kind, 0)
            if kind == BYTES:
                length, at = _varint(data, at)
            elif kind == VARINT:
                _, at = _varint(data, at)
            elif kind not in SKIPPED:
                return
            if length > len(data) - at:
                return
            content = data[at : at + length] if kind == BYTES else data[:0]
            at += length
            yield tag >> 3, data[begin:at], content
    except ValueError:
        return


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at that place and the place after it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("it ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
