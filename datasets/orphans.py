"""Finds inconsistencies: files without a row, rows without files, leftovers of uploads. Called by
`manage.py datasets check`; every finding names the problem and its fix.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.db.models import F

from accounts.models import User
from kernel import copying, storage

from . import lifecycle, versions
from .models import Dataset, State, Version
from .webdav import spool, unfinished
from .webdav.admission import clear
from .webdav.paths import HOME

BY = "datasets check"
SPOOL_KEPT_S = 24 * 3600
LOST = "lost"
OWN = frozenset({".spool", ".mounts", ".cache"})  # the platform's folders beside those of users


class NoStorage(Exception):
    """The storage itself is missing or empty, so its files cannot be checked."""


@dataclass(frozen=True)
class Finding:
    """A problem: its place, description and fix, and the function that applies the fix (None: an operator decides)."""

    where: str
    what: str
    fix: str
    repair: Callable[[], object] | None = None


def find() -> list[Finding]:
    """Return all findings. Raises NoStorage: without the storage every row would look like one without files."""
    top = storage.root() / "datasets"
    if not top.is_dir() or (Dataset.objects.filter(stored__gt=0).exists() and not any(_folders(top))):
        raise NoStorage(f"{top} is missing or empty: is the storage mounted?")
    return [
        *_files_without_rows(top),
        *_rows_without_files(),
        *_versions_without_files(),
        *_links(top),
        *_left_behind(),
    ]


def _folders(top: Path) -> Iterator[Path]:
    return (path for path in sorted(top.iterdir()) if path.name not in OWN)


def _files_without_rows(top: Path) -> Iterator[Finding]:
    move = f"move it to {storage.root() / LOST} for inspection"
    for owner in _folders(top):
        if owner.is_symlink() or not owner.is_dir():
            yield Finding(str(owner), "is not a user's folder", move, lambda path=owner: _put_aside(path))
        elif not User.objects.filter(username=owner.name).exists():
            yield Finding(str(owner), "no such user", move, lambda path=owner: _put_aside(path))
        else:
            for path in sorted(owner.iterdir()):
                known = _is_known(owner.name, path.name)
                if path.name == versions.FOLDER:
                    yield from _versions_without_rows(owner.name, path, move)
                elif path.name != HOME and not known and os.path.lexists(path):  # a deletion may just have ended
                    yield Finding(str(path), "no such dataset", move, lambda path=path: _put_aside(path))


def _is_known(owner: str, folder: str) -> bool:
    """Return whether the folder is a dataset's, or files are being copied there for one (datasets.copies)."""
    rows = Dataset.objects.filter(user__username=owner)
    if copied := copying.target_of(folder):
        return rows.filter(name=copied, state=State.CREATING).exclude(src="").exists()
    return rows.filter(name=folder).exists()


def _versions_without_rows(owner: str, top: Path, move: str) -> Iterator[Finding]:
    for path in sorted(top.glob("*/*")):
        rows = Version.objects.filter(dataset__user__username=owner, dataset__name=path.parent.name)
        known = path.name.isdecimal() and rows.filter(number=int(path.name)).exists()
        if not known and os.path.lexists(path):
            yield Finding(str(path), "no such version of a dataset", move, lambda path=path: _put_aside(path))


def _rows_without_files() -> Iterator[Finding]:
    rows = Dataset.objects.exclude(state=State.DELETING).select_related("user").order_by("pk")
    for row in rows.iterator(chunk_size=500):
        folder = storage.dataset_dir(row.user.username, row.name)
        real = storage.tree_size(folder)
        if real == row.stored or not Dataset.objects.filter(pk=row.pk, stored=row.stored, state=row.state).exists():
            continue  # consistent, or changing at this moment
        where = f"dataset {row.user.username}/{row.name} ({row.state})"
        what = f"{real} bytes are stored, but the row says {row.stored}"
        if row.state != State.READY:
            yield Finding(where, what, "correct the row", lambda row=row: lifecycle.recount(row.pk))
        elif real == 0:
            delete = lambda row=row: lifecycle.delete_dataset(user=row.user, name=row.name, by=BY)  # noqa: E731
            yield Finding(where, "its files are missing", "delete the dataset", delete)
        else:
            yield Finding(where, what, "none: restore the files, or delete the dataset")


def _versions_without_files() -> Iterator[Finding]:
    rows = Version.objects.filter(number__lt=F("dataset__version"), erased=False, size__gt=0)
    for version in rows.select_related("dataset__user").order_by("pk").iterator(chunk_size=500):
        user, name = version.dataset.user.username, version.dataset.name
        real = storage.tree_size(storage.dataset_version_dir(user, name, version.number))
        if real != version.size and Version.objects.filter(pk=version.pk, erased=False).exists():
            what = f"{real} bytes are stored, but the row says {version.size}"
            fix = "none: restore the files, or delete the version"
            yield Finding(f"dataset {user}/{name}, version {version.number}", what, fix)


def _links(top: Path) -> Iterator[Finding]:
    """Yield links and other kinds of files in the users' folders; they cannot have come through the platform."""
    for owner in _folders(top):
        if owner.is_symlink() or not owner.is_dir():
            continue
        for folder, folders, files in os.walk(owner, followlinks=False):
            for name in sorted((*folders, *files)):
                path = Path(folder) / name
                try:
                    mode = path.lstat().st_mode
                except FileNotFoundError:
                    continue
                if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                    what = "is a link" if stat.S_ISLNK(mode) else "is neither a file nor a folder"
                    fix = "remove it; its target is kept"
                    yield Finding(str(path), what, fix, lambda path=path: path.unlink(missing_ok=True))


def _left_behind() -> Iterator[Finding]:
    old = time.time() - SPOOL_KEPT_S
    for path in sorted(storage.spool_dir().iterdir()):
        try:
            stale = path.name.startswith("trash-") or path.lstat().st_mtime < old
        except FileNotFoundError:
            continue
        if path.name != unfinished.FOLDER and stale:
            yield Finding(str(path), "left over from an upload or deletion", "remove it", lambda path=path: clear(path))
    for path in spool.stale_parts(SPOOL_KEPT_S):
        yield Finding(
            str(path), "parts of an upload that can no longer be finished", "remove it", lambda path=path: clear(path)
        )


def _put_aside(path: Path) -> None:
    """Move it out of the datasets, to a new folder below `lost`."""
    relative = path.relative_to(storage.root() / "datasets")
    place = storage.root() / LOST / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09}" / relative
    place.parent.mkdir(mode=0o700, parents=True)
    os.rename(path, place)
