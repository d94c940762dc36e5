"""The files of external datasets for runs: fetched before a run starts, kept for the next one, and removed when others
need the room.

A version's files are in `{root}/datasets/.cache/{key of the version}`, which is renamed into place when all are there;
until then in `{key}.part`, where each file is whole, so that a fetch that was killed goes on with the others. What an
earlier version of the dataset has of the same object is linked. The platform's worker fetches: a run never sees a key
of a bucket. A version that a run uses is never removed: who removes one holds its row's lock, and looks for runs then;
who is about to use one has said so before, and marks the row.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Sum
from django.utils import timezone

from kernel import after_commit, disk, storage
from kernel.errors import Refused
from kernel.locking import Missing, locked
from kernel.messages import Message

from .. import claims, copies
from ..copies import holding
from ..models import Dataset, Manifest, State
from . import fetching, in_place, listing, manifests, rows
from .store import LISTED_BEFORE, Entry, Store

BATCH_FILES, BATCH_BYTES = 200, 256 << 20  # what is fetched again after a kill, at most
AGAIN_AFTER = timedelta(seconds=10)
ALLOWED_AFTER = timedelta(seconds=10)
SAID_AFTER = timedelta(seconds=1)
FORGOTTEN_AFTER = timedelta(hours=1)
COMPARED_FOR = timedelta(minutes=1)
PART = "part"
BEGUN = 1  # of `Manifest.fetched`, by which a fetch has its room
REMOVABLE = Q(cached__isnull=False) | Q(asked=None, fetched__gt=0)  # whole, or left by a fetch that has ended
TURN = Message("waits for the files of other datasets")

Place = tuple[str, str, int]  # owner, dataset, number of a version
_finders: list[Callable[[], set[Place]]] = []


class _Unwanted(Exception):
    """No run waits for the files any more."""


class _Full(Exception):
    """Runs use what would have to be removed for the files."""


def register(finder: Callable[[], set[Place]]) -> None:
    """Add a function that returns the versions that runs use, or wait for."""
    _finders.append(finder)


def in_use() -> set[Place]:
    """Return the versions that runs use, or wait for."""
    return {place for finder in _finders for place in finder()}


def folder(pk: int) -> Path:
    """Return the folder of the files of a version."""
    return storage.dataset_cache_dir() / str(pk)


# --- before a run ----------------------------------------------------------------------------------------------------
def waits_for(place: Place, since: datetime) -> Message | None:
    """Return what a run that is to read a version waits for; None when its files are here, or need not be.

    Call it when `in_use` has the version. Raises Refused where they could not be fetched since that moment.
    """
    owner, name, number = place
    found = Manifest.objects.filter(
        version__dataset__user__username=owner, version__dataset__name=name, version__number=number
    )
    now = timezone.now()
    if found.filter(cached__isnull=False).update(used=now):
        if all(folder(pk).is_dir() for pk in _keys(found)):
            return None
        found.filter(used=now).update(cached=None)  # a restore has taken the row back
    manifest = found.select_related("version__dataset").defer("listing").first()
    if manifest is None:
        if not Dataset.objects.filter(user__username=owner, name=name, external=True).exists():
            return None
        raise Refused("version %(number)s of the dataset %(name)s is not there any more", name=name, number=number)
    is_new = manifest.compared is not None and manifest.compared >= max(since, now - COMPARED_FOR)
    if is_new and in_place.of(manifest.version.dataset, number) is not None:
        return None
    if manifest.failed is not None and manifest.failed >= since:
        raise Refused(
            "the files of the dataset %(name)s could not be fetched: %(reason)s", name=name, reason=manifest.reason
        )
    late = Q(asked=None) | Q(asked__lt=now - AGAIN_AFTER)
    # Not where the files have come meanwhile: another run may read them already.
    if found.filter(late, cached=None).update(asked=now, failed=None):
        after_commit.enqueue("datasets.fetch", manifest.pk, queue="files")
    if manifest.reason and manifest.failed is None:
        return manifest.reason
    percent = min(100 * manifest.fetched // max(manifest.version.size, 1), 99)
    return Message("its dataset %(name)s is being fetched: %(percent)s %%", name=name, percent=percent)


def _keys(found) -> list[int]:
    return list(found.values_list("pk", flat=True))


# --- fetching --------------------------------------------------------------------------------------------------------
def fetch(pk: int) -> None:
    """Fetch the files of a version that a run waits for, unless another worker does. What goes wrong is the reason.

    One version of a user at a time, as of copies.
    """
    manifest = Manifest.objects.select_related("version__dataset__user").filter(pk=pk, asked__isnull=False).first()
    if manifest is None:
        return
    owner = manifest.version.dataset.user_id
    with (
        holding(f"datasets.fetch.{pk}") as alone,
        holding(f"datasets.fetches.of.{owner}") as first,
        holding(*copies.PLACES if alone and first else ()) as has_place,
    ):
        if not has_place:
            if alone:
                Manifest.objects.filter(pk=pk).update(reason=TURN)
            return
        manifest.refresh_from_db(fields=["asked", "cached"])
        if manifest.asked is None or manifest.cached is not None:  # who had the lock before has fetched them
            return
        try:
            _fetch(manifest)
        except _Full as full:
            Manifest.objects.filter(pk=pk).update(reason=full.args[0], fetched=0)
        except _Unwanted:
            _end(manifest, reason="")
        except (Refused, disk.DiskFull) as problem:
            _end(manifest, reason=problem.msg, failed=timezone.now())
        except OSError as problem:
            reason = Message("could not be written (%(problem)s)", problem=problem.strerror)
            _end(manifest, reason=reason, failed=timezone.now())


def _end(manifest: Manifest, **fields) -> None:
    """Record that nothing is fetched any more, and release the disk space that was for it. What was fetched stays for
    the next run, until others need the room or `sweep` removes it.
    """
    kept = BEGUN if _part(manifest.pk).is_dir() else 0
    Manifest.objects.filter(pk=manifest.pk).update(asked=None, fetched=kept, **fields)
    _hold(manifest.version.dataset_id)


def _part(pk: int) -> Path:
    return folder(pk).with_name(f"{pk}.{PART}")


def _hold(pk: int) -> None:
    """Let a dataset hold its part of the cache of its tenant's disk space. Raises Refused where there is not enough."""
    with contextlib.suppress(Missing), locked(Dataset, pk=pk) as row:
        if row.state == State.READY:
            claims.hold(row)


def _fetch(manifest: Manifest) -> None:
    row, listed = manifest.version.dataset, manifests.read(manifest)
    if (row.user.username, row.name, manifest.version.number) not in in_use():
        raise _Unwanted
    name, _path = rows.parse(row.src)
    store = Store(rows.find(row.user, name), LISTED_BEFORE)
    if _is_in_place(manifest, listed):
        return
    part = _part(manifest.pk)
    part.mkdir(mode=0o755, parents=True, exist_ok=True)
    part.chmod(0o755)
    _make_room(manifest)
    _hold(row.pk)
    missing = [entry for entry in listed.entries if not _is_there(part, entry)]
    missing = _linked(manifest, missing, part)
    disk.require(sum(entry.size for entry in missing))
    progress = _Progress(manifest, listed.size - sum(entry.size for entry in missing))
    draft = folder(manifest.pk).with_name(f"{manifest.pk}.draft")
    try:
        for batch in _batches(missing):
            storage.remove_tree(draft)
            draft.mkdir(mode=0o755)
            fetching.fetch(store, [listed.key(entry) for entry in batch], draft, listed.top, progress)
            for entry in batch:
                target = _made(part, entry)
                (draft / entry.path).chmod(0o644)
                os.replace(draft / entry.path, target)
            progress.begun += sum(entry.size for entry in batch)
    finally:
        storage.remove_tree(draft)
    _complete(manifest, part)


def _is_in_place(manifest: Manifest, listed: manifests.Listed) -> bool:
    """Return whether runs read the version where its bucket is mounted: the bucket has exactly its objects now."""
    row = manifest.version.dataset
    place = in_place.folder(row, manifest.top)
    same = place is not None and in_place.shows(place, listed)
    if same:
        progress = _Progress(manifest, 0)
        current = listing.listed(row, copies.LeftOut(), lambda: progress(0))
        same = (current.top, current.text) == (listed.top, listed.text)
    kept = {"asked": None, "fetched": 0, "compared": timezone.now()} if same else {"compared": None}
    Manifest.objects.filter(pk=manifest.pk).update(reason="", **kept)
    return same


def _complete(manifest: Manifest, part: Path) -> None:
    storage.remove_tree(folder(manifest.pk))  # one whose row was taken back by a restore
    os.rename(part, folder(manifest.pk))
    now = timezone.now()
    Manifest.objects.filter(pk=manifest.pk).update(
        asked=None, cached=now, used=now, fetched=manifest.version.size, reason=""
    )
    _hold(manifest.version.dataset_id)


def _is_there(part: Path, entry: Entry) -> bool:
    try:
        return (part / entry.path).lstat().st_size == entry.size
    except OSError:
        return False


def _made(part: Path, entry: Entry) -> Path:
    """Return the place of a file, with its folders, which any run's user may enter."""
    here = part
    for step in entry.path.split("/")[:-1]:
        here /= step
        if not here.is_dir():
            here.mkdir()
            here.chmod(0o755)
    return part / entry.path


def _linked(manifest: Manifest, missing: list[Entry], part: Path) -> list[Entry]:
    """Link what other versions of the dataset have of these objects; return the rest."""
    others = Manifest.objects.filter(version__dataset=manifest.version.dataset_id, cached__isnull=False)
    for other in others.exclude(pk=manifest.pk).order_by("-version__number"):
        there = set(manifests.read(other).entries) if other.top == manifest.top else set()
        rest = []
        for entry in missing:
            try:
                if entry not in there or not entry.tag:
                    raise FileNotFoundError
                os.link(folder(other.pk) / entry.path, _made(part, entry), follow_symlinks=False)
            except OSError:
                rest.append(entry)
        missing = rest
    return missing


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

    def __init__(self, manifest: Manifest, begun: int):
        self.manifest, self.begun = manifest, begun
        self.said = self.allowed = timezone.now()
        self._say(0)

    def __call__(self, written: int) -> None:
        now = timezone.now()
        if abs(now - self.said) >= SAID_AFTER:
            self.said = now
            self._say(written)

    def _say(self, written: int) -> None:
        row, now = self.manifest.version.dataset, timezone.now()
        if (row.user.username, row.name, self.manifest.version.number) not in in_use():
            raise _Unwanted
        if abs(now - self.allowed) >= ALLOWED_AFTER:
            rows.find(row.user, rows.parse(row.src)[0])
            self.allowed = now
        Manifest.objects.filter(pk=self.manifest.pk).update(
            asked=now, fetched=max(self.begun + written, BEGUN), reason=""
        )


# --- room ------------------------------------------------------------------------------------------------------------
def _make_room(manifest: Manifest) -> None:
    """Remove the files that were used least recently until those of the manifest fit. Raises _Full while runs use too
    much, Refused where they never fit.
    """
    limit, size = settings.BUCKET_CACHE_MIB << 20, manifest.version.size
    if size > limit:
        raise Refused("they have %(size)s bytes, and the cache has room for %(limit)s", size=size, limit=limit)
    with holding("datasets.cache.room") as alone:
        if not alone:
            raise _Full(TURN)
        while (taken := _taken(manifest.pk)) + size > limit:
            oldest = (
                Manifest.objects.filter(REMOVABLE).exclude(pk=manifest.pk).order_by(F("used").asc(nulls_first=True))
            )
            if not any(evict(pk) for pk in _keys(oldest)):
                text = "waits for %(size)s bytes of the cache of buckets, where runs use %(taken)s"
                raise _Full(Message(text, size=size, taken=taken))
        Manifest.objects.filter(pk=manifest.pk).update(fetched=BEGUN)


def _taken(but: int) -> int:
    others = Manifest.objects.exclude(pk=but).filter(Q(cached__isnull=False) | Q(fetched__gt=0))
    return others.aggregate(sum=Sum("version__size"))["sum"] or 0


def evict(pk: int) -> bool:
    """Remove the files of a version from the cache, unless a run uses them; return whether they are gone."""
    with transaction.atomic():
        manifest = Manifest.objects.select_for_update(of=("self",)).filter(REMOVABLE, pk=pk)
        manifest = manifest.select_related("version__dataset__user").defer("listing").first()
        if manifest is None:
            return False
        version = manifest.version
        if (version.dataset.user.username, version.dataset.name, version.number) in in_use():
            return False
        gone = [folder(pk).with_name(f"{pk}.gone-{secrets.token_hex(4)}") for _place in range(2)]
        for place, aside in zip((folder(pk), _part(pk)), gone, strict=True):
            with contextlib.suppress(FileNotFoundError):
                os.rename(place, aside)  # now, since the next run may have it fetched again
        Manifest.objects.filter(pk=pk).update(cached=None, fetched=0)
    for aside in gone:
        storage.remove_tree(aside)
    _hold(version.dataset_id)
    return True


def sweep() -> None:
    """Forget fetches that no run asks for any more, and remove what belongs to no version."""
    late = timezone.now() - FORGOTTEN_AFTER
    for manifest in Manifest.objects.filter(asked__lt=late).select_related("version").defer("listing")[:50]:
        with holding(f"datasets.fetch.{manifest.pk}") as alone:
            if alone:
                _end(manifest, reason=manifest.reason)
    for entry in os.scandir(storage.dataset_cache_dir()) if storage.dataset_cache_dir().is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if abs(time.time() - entry.stat().st_mtime) > FORGOTTEN_AFTER.total_seconds():
                _remove_unknown(entry.name)


def _remove_unknown(name: str) -> None:
    """Remove a folder of the cache that no version has any more, and that no fetch goes on with."""
    key, _dot, draft = name.partition(".")
    with holding(f"datasets.fetch.{key}") as alone:
        wanted = Manifest.objects.filter(pk=int(key)) if key.isdecimal() else Manifest.objects.none()
        wanted = wanted.filter(asked__isnull=False) if draft else wanted.filter(cached__isnull=False)
        if alone and not wanted.exists():
            storage.remove_tree(storage.dataset_cache_dir() / name)
            if draft == PART:
                Manifest.objects.filter(pk=int(key), asked=None, cached=None).update(fetched=0)
