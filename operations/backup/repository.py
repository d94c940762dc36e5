"""The repository: what a destination has in it.

    repository.json          form, identity, and the encrypted key where there is a passphrase
    objects/ab/{name}        content, named by its checksum: written once, whatever refers to it
    backups/{time}-{id}      one for each complete backup, written last: what is not there was not completed
    locks/{id}               who writes or prunes at the moment

An object is written before anything refers to it, and removed only when no backup does. A backup that was killed leaves
objects, which the next one uses and `prune` removes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from .places import BackupError, Place
from .sealing import Damaged, Sealer, new_key, open_key

FORM = 1
ABOUT, OBJECTS, BACKUPS, LOCKS = "repository.json", "objects", "backups", "locks"
WORKERS = 6
MAX_IN_FLIGHT = 16  # objects of 4 MiB
LOCK_LASTS = timedelta(minutes=15)  # after this a lock of another machine that was not renewed counts no more
RENEW_EVERY_S = 60


@dataclass
class Head:
    """A complete backup, as `backups/` has it.

    `moment` is that of the database; `size` is of everything that a restore writes, `added` what this backup has added
    to the destination, both in bytes. `files` and `rows` are the objects with the lists of both.
    """

    name: str
    moment: str
    completed: str
    version: str
    size: int
    added: int
    file_count: int
    files: list[str]
    facts: dict = field(default_factory=dict)


class Repository:
    """The backups at one place. Opened by `Repository.open`."""

    def __init__(self, place: Place, sealer: Sealer, identity: str, encrypted: bool):
        self.place, self.sealer, self.identity, self.encrypted = place, sealer, identity, encrypted
        self.known: set[str] = set()
        self.added = 0
        self._guard = threading.Lock()
        self._room = threading.Semaphore(MAX_IN_FLIGHT)
        self._pool = ThreadPoolExecutor(WORKERS)

    @classmethod
    def open(cls, place: Place, passphrase: str = "", create: bool = False) -> Repository:
        """Return the repository at the place; with `create` make one where there is none. Raises BackupError."""
        try:
            about = json.loads(place.read(ABOUT))
        except FileNotFoundError:
            if not create:
                raise BackupError(f"{place} has no backups of this platform") from None
            return cls._create(place, passphrase)
        except ValueError as problem:
            raise Damaged(f"{place}: {ABOUT} is damaged") from problem
        if about["form"] != FORM:
            raise BackupError(f"{place} was written by a newer version of the platform (form {about['form']})")
        kept = about.get("key")
        if kept and not passphrase:
            raise BackupError(f"{place} is encrypted: give its passphrase in MLP_BACKUP_PASSPHRASE")
        if passphrase and not kept:
            raise BackupError(f"{place} is not encrypted; unset MLP_BACKUP_PASSPHRASE, or choose another destination")
        return cls(place, Sealer(open_key(passphrase, kept) if kept else None), about["identity"], bool(kept))

    @classmethod
    def _create(cls, place: Place, passphrase: str) -> Repository:
        if not place.is_empty():
            raise BackupError(f"{place} is not empty, and has no backups of this platform; name another folder")
        key, kept = new_key(passphrase) if passphrase else (None, None)
        identity = secrets.token_hex(8)
        place.write(ABOUT, json.dumps({"form": FORM, "identity": identity, "key": kept}).encode())
        return cls(place, Sealer(key), identity, bool(key))

    # --- objects -----------------------------------------------------------------------------------------------------
    def survey(self) -> None:
        """Learn which objects are there: `put` does not write them again."""
        self.known = {stored.name.rpartition("/")[2] for stored in self.place.list(OBJECTS)}

    def put(self, data: bytes) -> Future[str]:
        """Store content in the background; return the future of its object's name. Waits while many are on their
        way.
        """
        self._room.acquire()
        future = self._pool.submit(self._put, data)
        future.add_done_callback(lambda _: self._room.release())
        return future

    def _put(self, data: bytes) -> str:
        name = self.sealer.name(data)
        with self._guard:
            if name in self.known:
                return name
        sealed = self.sealer.seal(name, data)
        self.place.write(_path(name), sealed)
        with self._guard:
            if name not in self.known:
                self.known.add(name)
                self.added += len(sealed)
        return name

    def get(self, name: str) -> bytes:
        """Return an object's content, proven to be what was stored. Raises Damaged."""
        try:
            data = self.sealer.open(name, self.place.read(_path(name)))
        except FileNotFoundError:
            raise Damaged(f"{self.place}: the object {name} is missing") from None
        if self.sealer.name(data) != name:
            raise Damaged(f"{self.place}: the object {name} is damaged")
        return data

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    # --- backups -----------------------------------------------------------------------------------------------------
    def save(self, head: Head) -> None:
        """Record a complete backup. Everything that it refers to has been written."""
        path = f"{BACKUPS}/{head.name}"
        self.place.write(path, self.sealer.seal(path, json.dumps(head.__dict__).encode()))

    def heads(self) -> list[Head]:
        """Return the complete backups, oldest first. Raises Damaged."""
        snapshots = []
        for stored in sorted(self.place.list(BACKUPS)):
            with contextlib.suppress(FileNotFoundError):  # pruned meanwhile
                snapshots.append(self._head(stored.name))
        return snapshots

    def head(self, name: str = "") -> Head:
        """Return the backup of that name, or the latest. Raises BackupError."""
        names = sorted(stored.name for stored in self.place.list(BACKUPS))
        wanted = f"{BACKUPS}/{name}" if name else (names or [""])[-1]
        if wanted not in names:
            raise BackupError(f"{self.place} has no backup {name}".rstrip() if name else f"{self.place} has no backups")
        return self._head(wanted)

    def _head(self, path: str) -> Head:
        try:
            return Head(**json.loads(self.sealer.open(path, self.place.read(path))))
        except (ValueError, TypeError) as problem:
            raise Damaged(f"{self.place}: the backup {path} is damaged") from problem

    def lines(self, head: Head) -> Iterator[bytes]:
        """Yield the lines of the list of a backup's files."""
        rest = b""
        for name in head.files:
            *whole, rest = (rest + self.get(name)).split(b"\n")
            yield from whole
        if rest:
            yield rest

    def prune(self, keep: int) -> tuple[int, int]:
        """Remove all but the latest `keep` backups, then the objects that no backup refers to; return both numbers."""
        heads = self.heads()
        old = heads[:-keep] if keep else []
        for head in old:
            self.place.remove(f"{BACKUPS}/{head.name}")
        used: set[str] = set()
        for head in heads[len(old) :]:
            used.update(head.files)
            for line in self.lines(head):
                used.update(piece[0] for piece in json.loads(line.partition(b"\t")[2]).get("c", ()))
        removed = 0
        for stored in list(self.place.list(OBJECTS)):
            if stored.name.rpartition("/")[2] not in used:
                self.place.remove(stored.name)
                removed += 1
        return len(old), removed

    # --- the lock ----------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out. Raises BackupError while somebody else does.

        A lock whose process has died on this machine counts no more, one of another machine after LOCK_LASTS.
        """
        mine = f"{LOCKS}/{secrets.token_hex(8)}"
        done = threading.Event()
        self._write_lock(mine)
        try:
            self._refuse_second(mine)
            self.place.clear_drafts()
            threading.Thread(target=self._renew, args=(mine, done), daemon=True).start()
            yield
        finally:
            done.set()
            self.place.remove(mine)

    def _write_lock(self, name: str) -> None:
        told = {"host": socket.gethostname(), "pid": os.getpid(), "began": _began(os.getpid())}
        self.place.write(name, json.dumps(told).encode())

    def _renew(self, name: str, done: threading.Event) -> None:
        while not done.wait(RENEW_EVERY_S):
            with contextlib.suppress(BackupError):
                self._write_lock(name)

    def _refuse_second(self, mine: str) -> None:
        for stored in list(self.place.list(LOCKS)):
            if stored.name == mine:
                continue
            try:
                other = json.loads(self.place.read(stored.name))
            except (FileNotFoundError, ValueError):
                continue
            here = other["host"] == socket.gethostname()
            lives = _began(other["pid"]) == other["began"] if here else False
            if lives or (not here and datetime.now(UTC) - stored.modified < LOCK_LASTS):
                raise BackupError(
                    f"another backup is being written to {self.place} (process {other['pid']} on {other['host']})"
                )
            self.place.remove(stored.name)


def _path(name: str) -> str:
    return f"{OBJECTS}/{name[:2]}/{name}"


def _began(pid: int) -> str:
    """Return when a process of this machine began, in the kernel's ticks; "" when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except OSError:
        return ""


def new_name(moment: float | None = None) -> str:
    """Return the name of a new backup: names sort by time."""
    at = datetime.fromtimestamp(moment or time.time(), UTC)
    return f"{at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
