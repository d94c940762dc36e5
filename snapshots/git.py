"""The commit of a checkout, read from the files of its `.git`. The git program is not run: it would execute what a user
uploads.

`dirty` compares the files with the index by content, since an upload does not preserve times. A file of the job that
the index does not have counts, unless `.gitignore` names it. It is None if unknown: for too many or too large files, or
an index version that is not supported.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kernel import storage
from kernel.errors import Refused

from . import ignoring

COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
REF = re.compile(r"refs/[A-Za-z0-9._/+@#-]{1,200}")
MAX_FILES = 2000
MAX_BYTES = 16 << 20
LARGEST = 4 << 20  # of a file of .git
HEADER = struct.Struct(">4sII")
ENTRY = struct.Struct(">10I20sH")
REGULAR = 0o100000


def read(home: Path, folder: str, files: list[str]) -> dict | None:
    """Return {commit, branch, dirty} of the checkout that contains the folder; None if there is none. `files` are those
    that the job takes along.
    """
    places = [folder, *(str(each) for each in Path(folder).parents)] if folder else [""]
    for place in dict.fromkeys("" if each == "." else each for each in places):
        head = (_content(home, place, ".git/HEAD") or b"").decode("ascii", "replace").strip()
        if not head:
            continue
        ref = head.removeprefix("ref:").strip() if head.startswith("ref:") else ""
        if ref and not REF.fullmatch(ref):
            return None
        commit = _commit(home, place, ref) if ref else head
        if commit and not COMMIT.fullmatch(commit):
            return None
        branch = ref.removeprefix("refs/heads/")
        return {"commit": commit, "branch": branch, "dirty": _is_dirty(home, place, files) if commit else None}
    return None


def _commit(home: Path, place: str, ref: str) -> str:
    """Return the commit of the ref; "" in a repository without one."""
    loose = (_content(home, place, f".git/{ref}") or b"").decode("ascii", "replace").strip()
    if loose:
        return loose
    for line in (_content(home, place, ".git/packed-refs") or b"").decode("utf-8", "replace").splitlines():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return ""


def _content(home: Path, place: str, path: str) -> bytes | None:
    try:
        file = storage.open_file(home, os.path.join(place, path))
    except Refused:
        return None
    if file is None:
        return None
    with file:
        data = file.read(LARGEST + 1)
    return data if len(data) <= LARGEST else None


def _is_dirty(home: Path, place: str, files: list[str]) -> bool | None:
    index = _content(home, place, ".git/index")
    try:
        entries = list(_entries(index or b""))
    except (struct.error, ValueError):
        return None
    if len(entries) > MAX_FILES or sum(size for _, _, size in entries) > MAX_BYTES:
        return None
    for path, sha1, _size in entries:
        data = _content(home, place, path)
        if data is None or hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest() != sha1:
            return True
    tracked = {os.path.join(place, path) for path, _sha1, _size in entries}
    patterns_of = cache(lambda folder: ignoring.patterns(_content(home, folder, ".gitignore")))

    def is_ignored(path: str) -> bool:
        """Return whether a `.gitignore` names the file: that of the checkout, or one of a folder between them."""
        folder = path
        while folder != place:
            folder = os.path.dirname(folder)
            patterns = patterns_of(folder)
            if patterns is not None and patterns.match_file(os.path.relpath(path, folder or ".")):
                return True
        return False

    return any(path not in tracked and not is_ignored(path) for path in files)


def _entries(index: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Yield (path, SHA-1, size) of the index's regular files. Raises ValueError or struct.error for an unsupported
    index.
    """
    kind, version, count = HEADER.unpack_from(index)
    if kind != b"DIRC" or version not in (2, 3):
        raise ValueError(version)
    offset = HEADER.size
    for _ in range(min(count, MAX_FILES + 1)):
        *numbers, sha1, flags = ENTRY.unpack_from(index, offset)
        start = offset + ENTRY.size + (2 if version == 3 and flags & 0x4000 else 0)
        end = index.index(b"\0", start)
        offset += ((end - offset) // 8 + 1) * 8  # entries are padded with 1 to 8 zero bytes
        if numbers[6] & 0o170000 == REGULAR:
            yield index[start:end].decode(), sha1, numbers[9]
