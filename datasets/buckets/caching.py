"""The files of external datasets and models for runs: fetched before a run starts, kept for the next one, and removed
when others need the room.

The files of a listing (kinds.py) are in `{root}/datasets/.cache/{key}`, which is renamed into place when all are there;
until then in `{key}.part`, where each file is whole, so that a fetch that was killed goes on with the others. What a
similar one has of the same object, such as an earlier version of the dataset, is linked. The platform's worker fetches:
a run never sees a key of a bucket. Files that a run uses are never removed: who removes them holds the row's lock, and
looks for runs then; who is about to use them has said so before, and marks the row.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from kernel import after_commit, disk, storage
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message

from .. import copies
from ..copies import holding
from ..models import Dataset, Listing, Manifest
from . import fetching, kinds, manifests, parts, rows
from .kinds import Kind, folder
from .places import VERSIONS, Place
from .store import Entry, Store

BATCH_FILES, BATCH_BYTES = 200, 256 << 20  # what is fetched again after a kill, at most
AGAIN_AFTER = timedelta(seconds=10)
ALLOWED_AFTER = timedelta(seconds=10)
SAID_AFTER = timedelta(seconds=1)
FORGOTTEN_AFTER = timedelta(hours=1)
PART = "part"
BEGUN = 1  # of `Listing.fetched`, by which a fetch has its room
REMOVABLE = Q(cached__isnull=False) | Q(asked=None, fetched__gt=0)  # whole, or left by a fetch that has ended
TURN = Message("waits for the files of other datasets and models")


class _Unwanted(Exception):
    """No run waits for the files any more."""


class _Full(Exception):
    """Runs use what would have to be removed for the files."""


# --- before a run ----------------------------------------------------------------------------------------------------
def waits_for(place: Place, since: datetime) -> Message | None:
    """Return what a run that is to read a version waits for; None when its files are here, or need not be.

    Call it when `places.in_use` has the version. Raises Refused where they could not be fetched since that moment.
    """
    owner, name, number = place
    found = Manifest.objects.filter(
        version__dataset__user__username=owner, version__dataset__name=name, version__number=number
    )
    try:
        return wait(VERSIONS, found, since)
    except Missing:
        if not Dataset.objects.filter(user__username=owner, name=name, external=True).exists():
            return None
        raise Refused("version %(number)s of the dataset %(name)s is not there any more", name=name, number=number)


def wait(kind: Kind, found: QuerySet, since: datetime) -> Message | None:
    """Return what a run that is to read the files of the one listing found waits for; None when they are here.

    Call it when the listing is in use. Raises Missing where none was found; Refused where the files could not be
    fetched since that moment.
    """
    now = timezone.now()
    if found.filter(cached__isnull=False).update(used=now):
        if all(folder(f"{kind.prefix}{pk}").is_dir() for pk in _keys(found)):
            return None
        found.filter(used=now).update(cached=None)  # a restore has taken the row back
    row = found.select_related(*kind.related).defer("listing").first()
    if row is None:
        raise Missing("manifest")
    if kind.is_in_place(row, since):
        return None
    if row.failed is not None and row.failed >= since:
        raise kind.failed(row)
    late = Q(asked=None) | Q(asked__lt=now - AGAIN_AFTER)
    # Not where the files have come meanwhile: another run may read them already.
    if found.filter(late, cached=None).update(asked=now, failed=None):
        after_commit.enqueue("datasets.fetch", kind.key(row), queue="files")
    if row.reason and row.failed is None:
        return row.reason
    return kind.progress(row, min(100 * row.fetched // max(kind.bytes(row), 1), 99))


def _keys(found) -> list[int]:
    return list(found.values_list("pk", flat=True))


# --- fetching --------------------------------------------------------------------------------------------------------
def fetch(key: int | str) -> None:
    """Fetch the files of a listing that a run waits for, unless another worker does. What goes wrong is the reason.

    One of a user at a time, as of copies.
    """
    try:
        kind, pk = kinds.find(key)
    except Missing:
        return
    table, row = kind.table, kind.table.objects.select_related(*kind.related).filter(pk=pk, asked__isnull=False).first()
    if row is None:
        return
    with (
        holding(_lock(key)) as alone,
        holding(f"datasets.fetches.of.{kind.user(row).pk}") as first,
        holding(*copies.PLACES if alone and first else ()) as has_place,
    ):
        if not has_place:
            if alone:
                table.objects.filter(pk=pk).update(reason=TURN)
            return
        row.refresh_from_db(fields=["asked", "cached"])
        if row.asked is None or row.cached is not None:  # who had the lock before has fetched them
            return
        try:
            _fetch(kind, row)
        except _Full as full:
            table.objects.filter(pk=pk).update(reason=full.args[0], fetched=0)
        except _Unwanted:
            _end(kind, row, reason="")
        except (Refused, disk.DiskFull) as problem:
            _end(kind, row, reason=_said(problem), failed=timezone.now())
        except OSError as problem:
            reason = Message("could not be written (%(problem)s)", problem=problem.strerror)
            _end(kind, row, reason=reason, failed=timezone.now())


def _said(problem: Refused | disk.DiskFull) -> Message:
    """Return the reason of a fetch that failed, without the field `src`: who submits a job has not written one."""
    return problem.problem if isinstance(problem, Refused) and problem.field == "src" else problem.msg


def _lock(key: int | str) -> str:
    return f"datasets.fetch.{key}"


def _end(kind: Kind, row: Listing, **fields) -> None:
    """Record that nothing is fetched any more, and release the disk space that was for it. What was fetched stays for
    the next run, until others need the room or `sweep` removes it.
    """
    kept = BEGUN if _part(kind.key(row)).is_dir() else 0
    kind.table.objects.filter(pk=row.pk).update(asked=None, fetched=kept, **fields)
    kind.hold(row)


def _part(key: int | str) -> Path:
    return folder(f"{key}.{PART}")


def _fetch(kind: Kind, row: Listing) -> None:
    listed, key = manifests.read(row), kind.key(row)
    if not kind.is_in_use(row):
        raise _Unwanted
    name, _path = rows.parse(kind.src(row))
    store = Store(rows.find(kind.user(row), name), kind.words)
    if kind.put_in_place(row, listed, lambda: _Progress(kind, row, 0)):
        return
    part = _part(key)
    part.mkdir(mode=0o755, parents=True, exist_ok=True)
    part.chmod(0o755)
    _make_room(kind, row)
    kind.hold(row)
    missing = [entry for entry in listed.entries if not parts.is_there(part, entry)]
    missing = parts.linked(kind, row, missing, part)
    disk.require(sum(entry.size for entry in missing))
    progress = _Progress(kind, row, listed.size - sum(entry.size for entry in missing))
    draft = folder(f"{key}.draft")
    try:
        for batch in _batches(missing):
            storage.remove_tree(draft)
            draft.mkdir(mode=0o755)
            fetching.fetch(store, [listed.key(entry) for entry in batch], draft, listed.top, progress)
            for entry in batch:
                target = parts.made(part, entry)
                (draft / entry.path).chmod(0o644)
                os.replace(draft / entry.path, target)
            progress.begun += sum(entry.size for entry in batch)
    finally:
        storage.remove_tree(draft)
    _complete(kind, row, part)


def _complete(kind: Kind, row: Listing, part: Path) -> None:
    kind.accept(row, part)
    place = folder(kind.key(row))
    storage.remove_tree(place)  # one whose row was taken back by a restore
    os.rename(part, place)
    now = timezone.now()
    kind.table.objects.filter(pk=row.pk).update(asked=None, cached=now, used=now, fetched=kind.bytes(row), reason="")
    kind.hold(row)


def _batches(entries: list[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    for entry in entries:
        batch.append(entry)
        if len(batch) == BATCH_FILES or sum(each.size for each in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


class _Progress:
    """Records how far a fetch is. Raises _Unwanted when no run waits for it any more, and Refused when the owner may
    not read the bucket any more.
    """

    def __init__(self, kind: Kind, row: Listing, begun: int):
        self.kind, self.row, self.begun = kind, row, begun
        self.said = self.allowed = timezone.now()
        self._say(0)

    def __call__(self, written: int) -> None:
        now = timezone.now()
        if abs(now - self.said) >= SAID_AFTER:
            self.said = now
            self._say(written)

    def _say(self, written: int) -> None:
        kind, row, now = self.kind, self.row, timezone.now()
        if not kind.is_in_use(row):
            raise _Unwanted
        if abs(now - self.allowed) >= ALLOWED_AFTER:
            rows.find(kind.user(row), rows.parse(kind.src(row))[0])
            self.allowed = now
        fetched = max(self.begun + written, BEGUN)
        kind.table.objects.filter(pk=row.pk).update(asked=now, fetched=fetched, reason="")


# --- room ------------------------------------------------------------------------------------------------------------
def _make_room(kind: Kind, row: Listing) -> None:
    """Remove the files that were used least recently until those of the listing fit. Raises _Full while runs use too
    much, Refused where they never fit.
    """
    limit, size, key = settings.BUCKET_CACHE_MIB << 20, kind.bytes(row), kind.key(row)
    if size > limit:
        raise Refused("they have %(size)s bytes, and the cache has room for %(limit)s", size=size, limit=limit)
    with holding("datasets.cache.room") as alone:
        if not alone:
            raise _Full(TURN)
        while (taken := _taken(kind, row)) + size > limit:
            if not any(evict(other) for other in _oldest() if other != key):
                text = "waits for %(size)s bytes of the cache of buckets, where runs use %(taken)s"
                raise _Full(Message(text, size=size, taken=taken))
        kind.table.objects.filter(pk=row.pk).update(fetched=BEGUN)


def _oldest() -> list[str]:
    """Return what may be removed, as folders are named, that which was used least recently first."""
    found = [
        (used is not None, used, f"{kind.prefix}{pk}")
        for kind in kinds.every()
        for pk, used in kind.table.objects.filter(REMOVABLE).values_list("pk", "used")
    ]
    return [key for _known, _used, key in sorted(found, key=lambda each: (each[0], each[1] or timezone.now()))]


def _taken(kind: Kind, but: Listing) -> int:
    """Return the bytes of what is in the cache or on its way there, without one listing."""
    total = 0
    for each in kinds.every():
        there = each.table.objects.filter(Q(cached__isnull=False) | Q(fetched__gt=0))
        there = there.exclude(pk=but.pk) if each is kind else there
        total += there.aggregate(sum=Sum(each.size))["sum"] or 0
    return total


def evict(key: int | str) -> bool:
    """Remove files from the cache, unless a run uses them; return whether they are gone."""
    kind, pk = kinds.find(key)
    with transaction.atomic():
        row = kind.rows().select_for_update(of=("self",)).filter(REMOVABLE, pk=pk).first()
        if row is None or kind.is_in_use(row):
            return False
        gone = _set_aside(key)
        kind.table.objects.filter(pk=pk).update(cached=None, fetched=0)
    for aside in gone:
        storage.remove_tree(aside)
    kind.hold(row)
    return True


def _set_aside(key: int | str) -> list[Path]:
    """Rename the folders of a listing, which is done at once: the next run may have its files fetched again."""
    gone = [folder(f"{key}.gone-{secrets.token_hex(4)}") for _place in range(2)]
    for place, aside in zip((folder(key), _part(key)), gone, strict=True):
        with contextlib.suppress(FileNotFoundError):
            os.rename(place, aside)
    return gone


def remove(key: str) -> bool:
    """Remove what the cache has of something that is deleted; return whether no worker fetches it any more."""
    with holding(_lock(key)) as alone:
        if alone:
            for aside in _set_aside(key):
                storage.remove_tree(aside)
    return alone


def sweep() -> None:
    """Forget fetches that no run asks for any more, and remove what belongs to no listing."""
    late = timezone.now() - FORGOTTEN_AFTER
    for kind in kinds.every():
        for row in kind.rows().filter(asked__lt=late)[:50]:
            with holding(_lock(kind.key(row))) as alone:
                if alone:
                    _end(kind, row, reason=row.reason)
    for entry in os.scandir(storage.dataset_cache_dir()) if storage.dataset_cache_dir().is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if abs(time.time() - entry.stat().st_mtime) > FORGOTTEN_AFTER.total_seconds():
                _remove_unknown(entry.name)


def _remove_unknown(name: str) -> None:
    """Remove a folder of the cache that no listing has any more, and that no fetch goes on with."""
    key, _dot, draft = name.partition(".")
    with holding(_lock(key)) as alone:
        wanted = Manifest.objects.none()
        with contextlib.suppress(Missing):
            kind, pk = kinds.find(key)
            wanted = kind.table.objects.filter(pk=pk)
        if alone and not wanted.filter(**{"asked__isnull" if draft else "cached__isnull": False}).exists():
            storage.remove_tree(storage.dataset_cache_dir() / name)
            if draft == PART:
                wanted.filter(asked=None, cached=None).update(fetched=0)
