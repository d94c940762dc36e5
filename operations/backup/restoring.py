"""Restoring a backup to an empty storage root, on this machine or another one.

The root is marked first and the mark is removed last: meanwhile `up` refuses the root, and a restore that was killed is
run again. Files that it had written are not written again; database and streams are made from the start.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connections

from kernel import storage
from supervision import release, servers_only
from supervision import root as roots

from . import database, layout, sparse, streams
from .places import BackupError, sync_folder
from .repository import Head, Repository
from .taking import Say
from .tree import parse
from .writing import ZEROS, Writer

SCRATCH = "mlp-verify-"


def restore(repository: Repository, head: Head, say: Say) -> dict:
    """Restore to MLP_ROOT; return the report of `refilling`. Raises BackupError.

    The root, and the database where it is not embedded, must be empty.
    """
    root = Path(settings.MLP_ROOT)
    mark = layout.unfinished(root)
    if mark is None and (existing := layout.content(root)):
        raise BackupError(f"{root} is not empty, it has {existing}: restore to another MLP_ROOT, or move the data away")
    if mark is not None and mark["backup"] != head.name:
        raise BackupError(
            f"{root} has an unfinished restore of {mark['backup']}: continue that with --backup {mark['backup']}, "
            "or remove the folder"
        )
    refuse_newer(head)
    if mark is None:
        _need_empty_servers(head)
    elif mark["servers"] != _servers():
        raise BackupError(f"the restore of {root} was begun with other servers: {mark['servers']}")
    with roots.lock() as held:
        if not held:
            raise BackupError(f"a platform runs on {root}; stop it first")
        return write_root(repository, head, root, os.environ, say)


def refuse_newer(head: Head) -> None:
    """Raise BackupError when the backup was made by a newer release than this one."""
    newer = sorted(set(head.facts["migrations"]) - release.known())
    if newer:
        raise BackupError(
            f"the backup was made by a newer release (version {head.version}): this one does not know {newer[0]}"
            f"{f' and {len(newer) - 1} other migrations' if newer[1:] else ''}. Restore it with that release"
        )


def _servers() -> list[str]:
    """Return which servers of others' are restored to: the URLs without their passwords."""
    urls = {"database": settings.DATABASE_URL, "nats": settings.NATS_URL}
    given = [urlsplit(url) for name, url in urls.items() if not settings.EMBEDDED[name]]
    return [f"{url.hostname}:{url.port}{url.path}" for url in given]


def _need_empty_servers(head: Head) -> None:
    if not settings.EMBEDDED["database"]:
        database.need_empty()
    if not settings.EMBEDDED["nats"]:
        streams.need_none(head.facts["streams"])


def write_root(
    repository: Repository, head: Head, root: Path, environment: Mapping[str, str], say: Say, checks_only: bool = False
) -> dict:
    """Write the backup to the root and fill its database and streams; return the report. Raises BackupError."""
    _need_room(root, repository, head)
    replaces = layout.unfinished(root) is not None
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = {"backup": head.name, "place": str(repository.place), "servers": _servers()}
    storage.write_atomic(root / layout.MARK, json.dumps(mark).encode())
    sync_folder(root)
    for name in (*layout.SERVERS, "run/runs"):  # of a restore that was killed
        storage.remove(root / name)
    for half_made in root.glob(".database.*"):
        storage.remove(half_made)
    say(f"files: {head.file_count}, {head.size >> 20} MiB")
    storage.remove(root / layout.DRAFTS)
    Writer(root, repository).write(repository.lines(head))
    facts = {**head.facts, "moment": head.moment, "replace": replaces}
    storage.write_atomic(root / layout.WORK / "facts.json", json.dumps(facts).encode())
    say("database and streams")
    _refill(root, environment, checks_only)
    report = json.loads((root / layout.REPORT).read_text())
    report["secret"] = head.facts["secret"] == report.pop("fingerprint")
    os.sync()
    storage.remove(root / layout.WORK)
    (root / layout.MARK).unlink()
    sync_folder(root)
    return report


def _need_room(root: Path, repository: Repository, head: Head) -> None:
    """Raise BackupError where the backup does not fit. Those of earlier releases count holes of sparse files, too."""
    there = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < head.size and free < (needed := size_on_disk(repository, head)):
        raise BackupError(f"{there}: the backup has {needed >> 20} MiB, and {free >> 20} MiB are free")


def size_on_disk(repository: Repository, head: Head) -> int:
    """Return the bytes that a restore writes: holes are not, and were stored as an object of zeros once."""
    left_out, total = {sparse.HOLE, repository.sealer.name(ZEROS)}, 0
    for line in repository.lines(head):
        total += sum(length for name, _, length in parse(line)[1].pieces if name not in left_out)
    return total


def _refill(root: Path, environment: Mapping[str, str], checks_only: bool) -> None:
    """Run `refilling` in a process with the new root's settings, which ends with this one."""
    connections.close_all()
    words = ["restore", "--refill", *(["--checks-only"] if checks_only else [])]
    try:
        servers_only.manage_elsewhere(root, environment, *words)
    except RuntimeError as problem:
        raise BackupError(str(problem)) from problem


@contextlib.contextmanager
def scratch_root(parent: Path | None) -> Iterator[Path]:
    """Yield a new folder for a root that is removed in the end; remove those of killed processes."""
    parent = (parent or Path(os.environ.get("TMPDIR") or "/tmp")).absolute()
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.glob(f"{SCRATCH}*"):
        with contextlib.suppress(ValueError):
            if not Path(f"/proc/{int(old.name.removeprefix(SCRATCH))}").exists():
                storage.remove(old)
    path = parent / f"{SCRATCH}{os.getpid()}"
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        storage.remove(path)
