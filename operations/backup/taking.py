"""Taking a backup of a platform, while it runs or stopped.

    1. the files are swept: most of the work, at no particular moment
    2. the moment: the database's snapshot is taken while no metrics can be stored, and the metrics' stream is copied
    3. the files are swept again, for what has changed; meanwhile pg_dump writes the snapshot
    4. the dump is swept like the files, the lists are stored, and at last the head: from then on it is a backup

A kill at any time leaves the backups as they were before.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from django.conf import settings

from kernel import storage
from supervision import root as roots
from supervision import servers_only

from . import database, layout, streams
from .places import BackupError
from .repository import Head, Repository, new_name
from .tree import CUT, Tree

NOTE = "backup.json"  # below run/: operations/monitoring reads it
Say = Callable[[str], None]


@contextlib.contextmanager
def servers() -> Iterator[None]:
    """Have the embedded servers running: the platform's, or of a stopped platform the servers alone."""
    if not any(settings.EMBEDDED.values()):
        yield
        return
    with roots.lock() as held:
        if not held:
            yield
            return
        if not (settings.MLP_ROOT / "database").exists() and settings.EMBEDDED["database"]:
            raise BackupError(f"there is no platform in {settings.MLP_ROOT}")
        try:
            with servers_only.running():
                yield
        except servers_only.NotStarted as problem:
            raise BackupError(str(problem)) from problem


def create(repository: Repository, say: Say, whole: bool = False) -> Head:
    """Take a backup into an open repository, which the caller has locked; return it. Raises BackupError.

    With `whole` every file is read and every object is written, whatever the destination has already.
    """
    root = Path(settings.MLP_ROOT)
    with layout.only_backup(root) as drafts:
        before: dict[bytes, bytes] = {}
        if not whole:
            repository.survey()
            before = _lines_of_last(repository)
        try:
            return _take(repository, root, drafts, before, say)
        except psycopg.Error as problem:
            raise BackupError(f"the database failed meanwhile: {str(problem).strip()}") from problem
        finally:
            shutil.rmtree(drafts, ignore_errors=True)


def _take(repository: Repository, root: Path, drafts: Path, before: dict[bytes, bytes], say: Say) -> Head:
    _need_room(drafts)
    tree, leaves_out = Tree(repository, before), layout.leaves_out(root, str(repository.place))
    tree.sweep(root, leaves_out=leaves_out)
    say(f"files: {len(tree.entries)}")
    with database.moment() as moment, ThreadPoolExecutor(1) as beside:
        facts = {"streams": streams.save(drafts / "streams", moment.release)}
        say(f"moment: {moment.at:%Y-%m-%d %H:%M:%S} UTC")
        dumping = beside.submit(database.dump, moment.snapshot, drafts / "dump")
        tree.sweep(root, leaves_out=leaves_out)
        gone = tree.gone
        dumping.result()
        facts |= {"rows": moment.rows(), "migrations": moment.migrations(), "secret": layout.fingerprint()}
    say(f"database: {sum(count for count, _ in facts['rows'].values())} rows in {len(facts['rows'])} tables")
    for name in ("dump", "streams"):
        tree.sweep(drafts / name, f"{layout.WORK}/{name}/")
    facts |= {"gone": gone, "unreadable": sorted(set(tree.unreadable))}
    head = Head(
        name=new_name(moment.at.timestamp()),
        moment=moment.at.isoformat(),
        completed="",
        version=layout.version(),
        size=tree.size,
        added=0,
        file_count=sum(entry.kind == "f" for entry in tree.entries.values()),
        files=_store_lines(repository, tree.lines()),
        facts=facts,
    )
    head.added, head.completed = repository.added, datetime.now(UTC).isoformat(timespec="seconds")
    repository.save(head)
    note = json.dumps({"completed": head.completed, "bytes": head.size})
    storage.write_atomic(root / "run" / NOTE, note.encode())
    return head


def _need_room(folder: Path) -> None:
    """Raise BackupError where the dump would not fit: without indexes it is smaller than the database."""
    needed, free = database.size(), shutil.disk_usage(folder).free
    if free < needed + (64 << 20):
        raise BackupError(
            f"{folder}: the dump of the database needs up to {needed >> 20} MiB for a while, and {free >> 20} MiB are "
            "free"
        )


def _lines_of_last(repository: Repository) -> dict[bytes, bytes]:
    """Return the lines of the latest backup by the JSON of their path; none where it cannot be read."""
    with contextlib.suppress(BackupError):
        lines = repository.lines(repository.head())
        return {line.partition(b"\t")[0]: line for line in lines}
    return {}


def _store_lines(repository: Repository, lines: Iterator[bytes]) -> list[str]:
    """Store the list of the files; return the names of its objects, in order."""
    waiting, size, futures = [], 0, []
    for line in lines:
        waiting.append(line)
        size += len(line) + 1
        if size >= CUT:
            futures.append(repository.put(b"\n".join(waiting) + b"\n"))
            waiting, size = [], 0
    if waiting:
        futures.append(repository.put(b"\n".join(waiting)))
    return [future.result() for future in futures]
