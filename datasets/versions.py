"""The versions of a dataset: what it holds and held, each with a number and a checksum that a job can name.

The files of a ready dataset never change. A new version is another ready dataset, uploaded like any: `publishing`
records in one transaction what is to be moved (`Dataset.incoming`), and `finish` moves the folders: what was current to
`.versions`, the other's to its place. After a crash in between, the removal of the other dataset, which is `deleting`
by then, finishes it.

Runs read a folder of hard links, which stays where it is whatever is published while they run or wait. A file system
without hard links gives them the version's own folder.

The checksum of a version is the SHA-256 of its files' lines `{path}\\0{size}\\0{sha256}\\n`, sorted: equal content has
an equal one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import stat
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from django.utils import timezone

from kernel import after_commit, storage
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message
from kernel.models import record_change

from . import uses
from .buckets import in_place
from .claims import hold
from .models import Dataset, State, Version
from .webdav import tree

log = logging.getLogger(__name__)

FOLDER = ".versions"
ASKED_AGAIN = timedelta(hours=1)
AT_ONCE = 2  # checksums of versions that are under way, so that other work on files goes on


def steps_of(row: Dataset, number: int) -> tuple[str, ...]:
    """Return the folders of a version below `{root}/datasets`."""
    kept = storage.dataset_version_dir(row.user.username, row.name, number)
    if number < row.version or kept.is_dir():  # moved, and perhaps not yet recorded
        return (row.user.username, FOLDER, row.name, str(number))
    return (row.user.username, row.name)


def find(row: Dataset, wanted: str) -> int | None:
    """Return the number of the version that a number or the beginning of a checksum names, None for no one."""
    rows = row.versions.filter(erased=False, number__lte=row.version)
    if len(wanted) < 12:
        number = int(wanted)
        return number if number == row.version or rows.filter(number=number).exists() else None
    return rows.filter(sha256__startswith=wanted).order_by("-number").values_list("number", flat=True).first()


def record_first(row: Dataset, by: str) -> None:
    """Record what a dataset holds that has just become ready, with the row locked."""
    Version.objects.create(dataset=row, number=row.version, size=row.stored, by=by, asked=timezone.now())
    after_commit.enqueue("datasets.checksum", row.pk, queue="files")


# --- publishing (begun by datasets.publishing) ------------------------------------------------------------------
def adopt(row: Dataset) -> None:
    """Record the current version of a dataset that became ready before there were versions."""
    given = {"size": row.stored, "by": "reconcile"}
    Version.objects.get_or_create(dataset=row, number=row.version, defaults=given)


def finish_from(source: int) -> None:
    """Finish the publication that takes the files of this dataset, if there is one."""
    for pk in Dataset.objects.filter(incoming=source).values_list("pk", flat=True):
        finish(pk)


def finish(pk: int) -> None:
    """Move the folders of a recorded publication, and let the new version be the current one. Idempotent."""
    with suppress(Missing), locked(Dataset, pk=pk) as row:
        if row.incoming_id is None:
            return
        user, source = row.user.username, row.incoming
        current, coming = storage.dataset_dir(user, row.name), storage.dataset_dir(user, source.name)
        kept = storage.dataset_version_dir(user, row.name, row.version)
        if not kept.is_dir():
            kept.parent.mkdir(parents=True, exist_ok=True)
            os.rename(current, kept)
        if coming.is_dir():
            os.rename(coming, current)
        version = row.versions.get(number=row.version + 1)
        row.version, row.size, row.stored, row.incoming = version.number, source.size, source.stored, None
        row.touched = timezone.now()
        row.save(update_fields=["version", "size", "stored", "incoming", "touched"])
        reason = Message("version %(number)s", number=version.number)
        record_change(row, transition="publish", source=row.state, target=row.state, by=version.by, reason=reason)
        after_commit.enqueue("datasets.checksum", row.pk, queue="files")
        after_commit.wake("dataset", row.pk)


# --- removing --------------------------------------------------------------------------------------------------------
def delete_version(*, user, name: str, number: int, by: str) -> Version:
    """Delete an earlier version; its files are removed in the background. Raises Missing and WrongState, also while
    something uses it.
    """
    with locked(Dataset, user=user, name=name) as row:
        version = row.versions.filter(number=number, erased=False).first()
        if version is None:
            raise Missing("version")
        if number >= row.version:
            raise WrongState("version %(number)s is the current one; delete the dataset instead", number=number)
        uses.require_unused(row, number)
        version.erased, version.dataset = True, row
        version.save(update_fields=["erased"])
        reason = Message("version %(number)s deleted", number=number)
        record_change(row, transition="delete_version", source=row.state, target=row.state, by=by, reason=reason)
        after_commit.enqueue("datasets.erase_version", version.pk, queue="files")
    return version


def erase_version(pk: int) -> None:
    """Remove the files of a deleted version, then its row, and release its disk space. Idempotent."""
    version = Version.objects.select_related("dataset__user").filter(pk=pk, erased=True).first()
    if version is None:
        return
    user, name = version.dataset.user.username, version.dataset.name
    _remove_cached(pk)
    storage.remove_tree(storage.dataset_version_dir(user, name, version.number))
    storage.remove_tree(storage.dataset_mount_dir(user, name, version.number))
    with suppress(Missing), locked(Dataset, pk=version.dataset_id) as row:
        version.delete()
        hold(row)
        after_commit.changed(user, "dataset", name)


def _remove_cached(pk: int) -> None:
    """Remove what the cache of buckets has of a version, also what a fetch has left (buckets.caching)."""
    for name in (str(pk), f"{pk}.part"):
        storage.remove_tree(storage.dataset_cache_dir() / name)


def remove_folders(row: Dataset) -> None:
    """Remove the versions and the links of a dataset that is being deleted."""
    user = row.user.username
    for pk in row.versions.values_list("pk", flat=True) if row.external else ():
        _remove_cached(pk)
    storage.remove_tree(storage.dataset_version_dir(user, row.name, 0).parent)
    storage.remove_tree(storage.dataset_mount_dir(user, row.name, 0).parent)


# --- what runs read --------------------------------------------------------------------------------------------------
def folder_for_runs(row: Dataset, number: int) -> Path:
    """Return the folder with a version's files for runs: it stays where it is when another version is published."""
    if row.external:
        if (place := in_place.to_bind(row, number)) is not None:
            return place
        return storage.dataset_cache_dir() / str(row.versions.values_list("pk", flat=True).get(number=number))
    place = storage.dataset_mount_dir(row.user.username, row.name, number)
    if place.is_dir():
        return place
    with locked(Dataset, pk=row.pk) as now:  # so nothing is moved meanwhile
        files = storage.root() / "datasets" / Path(*steps_of(now, number))
        draft = storage.spool_dir() / f"links-{secrets.token_hex(8)}"
        try:
            _link_tree(files, draft)
            place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            os.rename(draft, place)
        except OSError as problem:
            storage.remove_tree(draft)
            if place.is_dir():
                return place
            log.warning("no links to the files of %s@%s: %s", row, number, problem)
            return files
    return place


def _link_tree(source: Path, target: Path) -> None:
    for folder, _folders, files in os.walk(source):
        here = target / os.path.relpath(folder, source)
        here.mkdir(mode=0o755)
        here.chmod(0o755)
        for name in files:
            os.link(Path(folder) / name, here / name, follow_symlinks=False)


# --- checksums -------------------------------------------------------------------------------------------------------
def checksum(pk: int) -> None:
    """Compute the checksums that are missing of a dataset's versions. Those of its files are stored with them, so that
    a long computation goes on where it was interrupted.
    """
    for number in list(Version.objects.filter(dataset=pk, sha256="", erased=False).values_list("number", flat=True)):
        while (row := Dataset.objects.select_related("user").filter(pk=pk).first()) is not None:
            if number > row.version:
                break  # not in place yet
            try:
                steps = steps_of(row, number)
                sums = _summed(steps)
            except OSError:
                if steps_of(row, number) == steps:
                    raise
                continue  # a newer version was published meanwhile
            if steps_of(row, number) == steps:
                Version.objects.filter(dataset=pk, number=number, sha256="").update(**sums)
                after_commit.changed(row.user.username, "dataset", row.name)
                break


def _summed(steps: tuple[str, ...]) -> dict:
    lines, size = [], 0
    for parts, info in tree.walk(steps):
        if stat.S_ISREG(info.st_mode):
            lines.append(f"{'/'.join(parts)}\0{info.st_size}\0{tree.sha256((*steps, *parts))}\n".encode())
            size += info.st_size
    return {"sha256": hashlib.sha256(b"".join(sorted(lines))).hexdigest(), "files": len(lines)}


def heal() -> None:
    """Record the versions of earlier datasets, ask again for checksums, and for the removal of deleted versions."""
    now = timezone.now()
    for row in Dataset.objects.filter(state=State.READY, versions=None)[:50]:
        adopt(row)
    waiting = Version.objects.filter(sha256="", erased=False, dataset__state=State.READY)
    free = AT_ONCE - waiting.filter(asked__gte=now - ASKED_AGAIN).count()
    for version in waiting.exclude(asked__gte=now - ASKED_AGAIN).order_by("pk")[: max(0, free)]:
        Version.objects.filter(pk=version.pk).update(asked=now)
        after_commit.enqueue("datasets.checksum", version.dataset_id, queue="files")
    for pk in Version.objects.filter(erased=True).values_list("pk", flat=True)[:200]:
        after_commit.enqueue("datasets.erase_version", pk, queue="files")
