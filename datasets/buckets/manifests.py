"""The manifests of external datasets: which objects of a bucket each version has, with their sizes and tags.

A manifest is written once. Pages, REST and the data service list it as if its files were here.
"""

from __future__ import annotations

import functools
import hashlib
import stat
import zlib
from collections.abc import Iterator
from os import stat_result
from typing import NamedTuple

from kernel.errors import Refused
from kernel.locking import Missing

from ..models import Dataset, Listing, Manifest, Version
from . import rows, waiting
from .store import LISTED_BEFORE, Entry, Store, Words

MAX_OBJECTS = 100_000


class Listed(NamedTuple):
    """Objects by their paths in the dataset. Their keys begin with `top`."""

    top: str
    entries: list[Entry]

    @property
    def size(self) -> int:
        """Return the bytes of all objects."""
        return sum(entry.size for entry in self.entries)

    @property
    def text(self) -> bytes:
        """Return a line for each object."""
        return b"".join(f"{path}\0{size}\0{tag}\n".encode() for path, size, tag in self.entries)

    @property
    def packed(self) -> bytes:
        """Return these lines as a manifest has them."""
        return zlib.compress(self.text)

    def key(self, entry: Entry) -> Entry:
        """Return an object by its path in the bucket."""
        return entry._replace(path=f"{self.top}/{entry.path}") if self.top else entry


def record(row: Dataset, listed: Listed, by: str) -> Version:
    """Record what the current version of the locked dataset has."""
    text = listed.text
    version = Version.objects.create(
        dataset=row, number=row.version, sha256=hashlib.sha256(text).hexdigest(), files=len(listed.entries),
        size=listed.size, by=by,
    )  # fmt: skip
    Manifest.objects.create(version=version, top=listed.top, listing=listed.packed)
    return version


def read(manifest: Listing) -> Listed:
    """Return the objects of a manifest."""
    return Listed(manifest.top, _entries(b"\n" + zlib.decompress(manifest.listing)))


def of(row: Dataset, number: int) -> Listed:
    """Return the objects of a version; none while the bucket is listed for the first time."""
    top, text = _lines(row, number)
    return Listed(top, _entries(text))


def find(row: Dataset, number: int, path: str) -> tuple[str, Entry] | None:
    """Return where the keys of a version begin and the object of a file; None where there is none. A client asks for
    each of a hundred thousand files, so the others are not looked at.
    """
    top, text = _lines(row, number)
    entry = _find(text, path)
    return (top, entry) if entry is not None else None


def find_in(manifest: Listing, path: str) -> Entry | None:
    """Return the object of a file of a manifest, likewise; None where there is none."""
    return _find(b"\n" + zlib.decompress(manifest.listing), path)


def _find(text: bytes, path: str) -> Entry | None:
    at = text.find(b"\n%s\0" % path.encode())
    return _entries(b"\n" + text[at + 1 : text.index(b"\n", at + 1) + 1])[0] if at >= 0 else None


def _lines(row: Dataset, number: int) -> tuple[str, bytes]:
    """Return where the keys of a version begin, and its lines, after a first one that is empty."""
    rows = Manifest.objects.filter(version__dataset=row, version__number=number).values_list("pk", "top")
    for pk, top in rows:
        return top, _text(pk)
    return "", b"\n"


@functools.lru_cache(4)  # of a few MiB at most; a manifest never changes
def _text(pk: int) -> bytes:
    return b"\n" + zlib.decompress(Manifest.objects.values_list("listing", flat=True).get(pk=pk))


def _entries(text: bytes) -> list[Entry]:
    parts = (line.split("\0") for line in text.decode().split("\n")[1:-1])
    return [Entry(path, int(size), tag) for path, size, tag in parts]


def address(row: Dataset, number: int, path: str) -> str:
    """Return an address that is good for a few minutes, at which anybody can get the file, and only that; "" for one
    without bytes, which may be no object but the mark of a folder.

    Raises Missing where the version has no such file; Refused where its object has changed since it was listed, the
    server does not answer, or the owner may not read the bucket any more; waiting.Slow.
    """
    found = find(row, number, path)
    if found is None:
        raise Missing("file")
    return address_of(row.user, row.src, Listed(found[0], []), found[1], LISTED_BEFORE)


def address_of(user, src: str, listed: Listed, entry: Entry, words: Words) -> str:
    """Return such an address of a listed object of a source; `words` say what has become of it. Raises Refused;
    waiting.Slow.
    """
    name, _path = rows.parse(src)
    bucket = rows.find(user, name)
    if not entry.size:
        return ""
    with waiting.for_server(bucket):
        return Store(bucket, words).address(listed.key(entry))


# --- as the status of files and folders ------------------------------------------------------------------------------
def status(row: Dataset, path: str) -> stat_result | None:
    """Return the status of a file or folder of the current version, None where there is none."""
    if not path:
        return _status(row)
    if (found := find(row, row.version, path)) is not None:
        return _status(row, found[1])
    return _status(row) if b"\n%s/" % path.encode() in _lines(row, row.version)[1] else None


def children(row: Dataset, number: int, inside: str) -> list[tuple[str, stat_result]]:
    """Return the files and folders in a folder of a version, sorted. Raises FileNotFoundError where there is none."""
    return _children(row, below(row, number, inside))


def below(row: Dataset, number: int, inside: str) -> list[Entry]:
    """Return what is below a folder, by paths from there. Raises FileNotFoundError where nothing is."""
    prefix = f"{inside}/" if inside else ""
    entries = of(row, number).entries
    found = [each._replace(path=each.path.removeprefix(prefix)) for each in entries if each.path.startswith(prefix)]
    if inside and not found:
        raise FileNotFoundError(inside)
    return found


def _children(row: Dataset, entries: list[Entry]) -> list[tuple[str, stat_result]]:
    there = {}
    for entry in entries:
        name, folder, _rest = entry.path.partition("/")
        there[name] = _status(row) if folder else _status(row, entry)
    return sorted(there.items())


def walk(row: Dataset, inside: str) -> Iterator[tuple[tuple[str, ...], stat_result]]:
    """Yield everything below a folder of the current version as (parts from there, status), parents first."""
    seen: set[tuple[str, ...]] = set()
    for entry in below(row, row.version, inside):
        parts = tuple(entry.path.split("/"))
        for length in range(1, len(parts)):
            if parts[:length] not in seen:
                seen.add(parts[:length])
                yield parts[:length], _status(row)
        yield parts, _status(row, entry)


def _status(row: Dataset, entry: Entry | None = None) -> stat_result:
    """Return the status of a file, or of a folder. Its number is of the object's tag, so that the validators of WebDAV
    change with it.
    """
    at = int((row.refreshed or row.created).timestamp())
    kind, size, number = stat.S_IFDIR | 0o755, 0, 0
    if entry is not None:
        kind, size = stat.S_IFREG | 0o644, entry.size
        number = int.from_bytes(hashlib.sha256(entry.tag.encode()).digest()[:6])
    return stat_result((kind, number, 0, 1, 0, 0, size, at, at, at), {"st_mtime_ns": at * 10**9})


def require_external(row: Dataset) -> None:
    """Raise Refused unless the dataset has a manifest."""
    if not row.external:
        raise Refused("the files of the dataset %(name)s are stored here; list them by WebDAV", name=row.name)
