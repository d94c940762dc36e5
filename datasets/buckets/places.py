"""The versions of external datasets that runs read: in the cache of buckets, or where their bucket is mounted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone

from kernel.errors import Refused
from kernel.locking import Missing, locked
from kernel.messages import Message

from .. import claims, copies
from ..models import Dataset, Manifest, State
from . import in_place, kinds, listing
from .kinds import Begin, Kind
from .manifests import Listed

COMPARED_FOR = timedelta(minutes=1)

Place = tuple[str, str, int]  # owner, dataset, number of a version
_finders: list[Callable[[], set[Place]]] = []


def register(finder: Callable[[], set[Place]]) -> None:
    """Add a function that returns the versions that runs use, or wait for."""
    _finders.append(finder)


def in_use() -> set[Place]:
    """Return the versions that runs use, or wait for."""
    return {place for finder in _finders for place in finder()}


class Versions(Kind[Manifest]):
    """The versions of external datasets."""

    table, size, related = Manifest, "version__size", ("version__dataset__user",)

    def user(self, row: Manifest):
        return row.version.dataset.user

    def src(self, row: Manifest) -> str:
        return row.version.dataset.src

    def bytes(self, row: Manifest) -> int:
        return row.version.size

    def is_in_use(self, row: Manifest) -> bool:
        return (row.version.dataset.user.username, row.version.dataset.name, row.version.number) in in_use()

    def hold(self, row: Manifest) -> None:
        with contextlib.suppress(Missing), locked(Dataset, pk=row.version.dataset_id) as dataset:
            if dataset.state == State.READY:
                claims.hold(dataset)

    def like(self, row: Manifest) -> QuerySet[Manifest]:
        return Manifest.objects.filter(version__dataset=row.version.dataset_id).order_by("-version__number")

    def progress(self, row: Manifest, percent: int) -> Message:
        return Message(
            "its dataset %(name)s is being fetched: %(percent)s %%", name=row.version.dataset.name, percent=percent
        )

    def failed(self, row: Manifest) -> Refused:
        return Refused(
            "the files of the dataset %(name)s could not be fetched: %(reason)s",
            name=row.version.dataset.name, reason=row.reason,
        )  # fmt: skip

    def is_in_place(self, row: Manifest, since: datetime) -> bool:
        # Neither a time in the future: the clock may have been set back.
        is_new = (
            row.compared is not None and row.compared >= since and abs(timezone.now() - row.compared) <= COMPARED_FOR
        )
        return is_new and in_place.of(row.version.dataset, row.version.number) is not None

    def put_in_place(self, row: Manifest, listed: Listed, begin: Begin) -> bool:
        dataset = row.version.dataset
        place = in_place.folder(dataset, row.top)
        same = place is not None and in_place.shows(dataset, place, listed)
        if same:
            progress = begin()
            current = listing.listed(dataset, copies.LeftOut(), lambda: progress(0))
            same = (current.top, current.text) == (listed.top, listed.text)
        kept = {"asked": None, "fetched": 0, "compared": timezone.now()} if same else {"compared": None}
        Manifest.objects.filter(pk=row.pk).update(reason="", **kept)
        return same


VERSIONS = Versions()
kinds.register(VERSIONS)
