"""What the cache of buckets has the files of: versions of datasets, and what apps above add. Each kind says of its
listings whose they are, what uses them, and what they count to.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from django.db.models import QuerySet

from kernel import storage
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message

from ..models import Listing
from .manifests import Listed
from .store import LISTED_BEFORE, Words

KEY = re.compile(r"([a-z]*)([0-9]{1,18})")

Begin = Callable[[], Callable[[int], object]]
Row = TypeVar("Row", bound=Listing)


class Kind(ABC, Generic[Row]):
    """One kind of listing. `prefix` begins the names of its folders, `size` is the path of the bytes in a query,
    `related` are the rows that the methods read.
    """

    prefix = ""
    table: type[Row]
    size: str
    related: tuple[str, ...]
    words: Words = LISTED_BEFORE

    def rows(self) -> QuerySet[Row]:
        """Return all listings, without their objects."""
        return self.table.objects.select_related(*self.related).defer("listing")

    def key(self, row: Row) -> str:
        """Return the name of the folder of a listing's files."""
        return f"{self.prefix}{row.pk}"

    @abstractmethod
    def user(self, row: Row):
        """Return the user who has to be allowed to read the bucket."""

    @abstractmethod
    def src(self, row: Row) -> str:
        """Return the source: `s3/{bucket}[/{path}]`."""

    @abstractmethod
    def bytes(self, row: Row) -> int:
        """Return the bytes of the objects."""

    @abstractmethod
    def is_in_use(self, row: Row) -> bool:
        """Return whether a run uses the files, or waits for them."""

    @abstractmethod
    def hold(self, row: Row) -> None:
        """Let the object hold its part of the cache of its tenant's disk space. Raises Refused where there is not
        enough.
        """

    @abstractmethod
    def like(self, row: Row) -> QuerySet[Row]:
        """Return other listings that may have the same objects, those that have most first."""

    @abstractmethod
    def progress(self, row: Row, percent: int) -> Message:
        """Return what a run waits for."""

    @abstractmethod
    def failed(self, row: Row) -> Refused:
        """Return why a run cannot start."""

    def is_in_place(self, row: Row, since: datetime) -> bool:
        """Return whether runs read the files where their bucket is mounted, as was found since that moment."""
        return False

    def put_in_place(self, row: Row, listed: Listed, begin: Begin) -> bool:
        """Check whether runs may read the files where their bucket is mounted; nothing is fetched then. `begin`
        returns what is called meanwhile, as while files are fetched.
        """
        return False

    def accept(self, row: Row, folder: Path) -> None:
        """Check the files before they are used; they are all in the folder. Raises Refused for files that are not what
        they should be, which are removed then; OSError.
        """


_kinds: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Add a kind of listing."""
    _kinds[kind.prefix] = kind


def every() -> list[Kind]:
    """Return all kinds."""
    return list(_kinds.values())


def find(key: int | str) -> tuple[Kind, int]:
    """Return the kind and the primary key of what a folder of the cache is named after. Raises Missing."""
    parts = KEY.fullmatch(str(key))
    if parts is None or parts[1] not in _kinds:
        raise Missing("manifest")
    return _kinds[parts[1]], int(parts[2])


def folder(key: int | str) -> Path:
    """Return the folder of the files of a listing."""
    return storage.dataset_cache_dir() / str(key)
