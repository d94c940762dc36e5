"""The folder of a fetch that is under way: which of its files are whole, and what of them is linked, not fetched."""

from __future__ import annotations

import os
from pathlib import Path

from ..models import Listing
from . import manifests
from .kinds import Kind, folder
from .store import Entry


def is_there(part: Path, entry: Entry) -> bool:
    """Return whether the file of an object is in the folder."""
    try:
        return (part / entry.path).lstat().st_size == entry.size
    except OSError:
        return False


def made(part: Path, entry: Entry) -> Path:
    """Return the place of a file, with its folders, which any run's user may enter."""
    here = part
    for step in entry.path.split("/")[:-1]:
        here /= step
        if not here.is_dir():
            here.mkdir()
            here.chmod(0o755)
    return part / entry.path


def linked(kind: Kind, row: Listing, missing: list[Entry], part: Path) -> list[Entry]:
    """Link what similar listings have of these objects; return the rest."""
    for other in kind.like(row).filter(cached__isnull=False).exclude(pk=row.pk):
        there = set(manifests.read(other).entries) if other.top == row.top else set()
        rest = []
        for entry in missing:
            try:
                if entry not in there or not entry.tag:
                    raise FileNotFoundError
                os.link(folder(kind.key(other)) / entry.path, made(part, entry), follow_symlinks=False)
            except OSError:
                rest.append(entry)
        missing = rest
    return missing
