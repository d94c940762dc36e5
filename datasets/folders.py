"""How many files a folder of a dataset has, and how many bytes, with all folders below it.

The files of a ready dataset do not change, so its sums are cached. A folder of very many files is counted to a bound.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.core.cache import cache

from kernel import storage

from . import versions
from .buckets import manifests
from .models import Dataset, State

log = logging.getLogger(__name__)

MAX = 200_000  # files that are looked at in a ready dataset,
MAX_CHANGING = 5_000  # and in one whose sums are not cached
KEPT_S = 24 * 3600


@dataclass
class Sum:
    """The files below a folder. Not `whole`: there are more."""

    files: int = 0
    size: int = 0
    whole: bool = True


def sums(row: Dataset, number: int, inside: str) -> dict[str, Sum]:
    """Return the sums of the folders in the folder `inside` of a version, which exists, by name; those of itself under
    "".
    """
    if row.state != State.READY:
        return _count(row, number, inside, MAX_CHANGING)
    key = f"dataset-sums-{row.pk}-{number}-{inside.encode().hex()}"[:240]
    try:
        sums_by_folder = cache.get(key)
        if sums_by_folder is None:
            sums_by_folder = _count(row, number, inside, MAX)
            cache.set(key, sums_by_folder, KEPT_S)
    except Exception as problem:  # only a cache
        log.warning("the cache does not respond; counting the files again: %s", problem)
        sums_by_folder = _count(row, number, inside, MAX_CHANGING)
    return sums_by_folder


def _count(row: Dataset, number: int, inside: str, most: int) -> dict[str, Sum]:
    sums = {"": Sum()}
    for place, (path, size) in enumerate(_files(row, number, inside)):
        if place >= most:
            for total in (sums[""], sums.get(path.partition("/")[0])):
                if total is not None:
                    total.whole = False
            break
        folder, slash, _rest = path.partition("/")
        for name in ("", folder) if slash else ("",):
            total = sums.setdefault(name, Sum())
            total.files += 1
            total.size += size
    return sums


def _files(row: Dataset, number: int, inside: str) -> Iterator[tuple[str, int]]:
    """Yield the files below a folder of a version, and their sizes."""
    if row.external:
        yield from ((entry.path, entry.size) for entry in manifests.below(row, number, inside))
        return
    base = storage.root() / "datasets" / Path(*versions.steps_of(row, number))
    for path, info in storage.files(base / inside if inside else base):
        yield path, info.st_size
