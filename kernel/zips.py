"""A folder as a zip that is written while it is read."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from . import storage

PIECE = 1 << 20


class _Sink:
    """The file to which zipfile writes: it cannot seek, and its bytes are taken piece by piece."""

    def __init__(self):
        self.pieces: list[bytes] = []

    def write(self, data) -> int:
        self.pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        data, self.pieces = b"".join(self.pieces), []
        return data


def zipped(base: Path, files: list[str]) -> Iterator[bytes]:
    """Yield a zip of the files, uncompressed since weights hardly compress, never whole in memory."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for path in files:
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o644 << 16
            source = storage.safe_join(base, path)
            entry.file_size = source.stat().st_size
            with source.open("rb") as file, archive.open(entry, "w") as out:
                while piece := file.read(PIECE):
                    out.write(piece)
                    yield sink.take()
    yield sink.take()
