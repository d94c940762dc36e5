"""Writing a backup's files to a storage root: whole files only, so that a restore which was killed can be continued."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from . import sparse
from .layout import DRAFTS
from .repository import Repository
from .sealing import Damaged
from .tree import CUT, TreeEntry, parse

WORKERS = 4
ZEROS = bytes(CUT)
KEPT = 8  # objects in memory, of 4 MiB: neighbours share them


class Objects:
    """A repository's objects, each read once for those who want it at about the same time."""

    def __init__(self, repository: Repository):
        self.repository = repository
        self._kept: OrderedDict[str, Future[bytes]] = OrderedDict()
        self._guard = Lock()

    def get(self, name: str) -> bytes:
        with self._guard:
            future = self._kept.get(name)
            if wanted := future is None:
                future = self._kept[name] = Future()
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        if wanted:
            try:
                future.set_result(self.repository.get(name))
            except BaseException as problem:
                future.set_exception(problem)
        return future.result()


class Writer:
    """Writes entries below `root`. Owners are restored where this process may do that."""

    def __init__(self, root: Path, repository: Repository):
        self.root, self.objects = root, Objects(repository)
        self.drafts = root / DRAFTS
        self.owns = os.geteuid() == 0

    def write(self, lines: Iterator[bytes]) -> None:
        """Write everything: folders, files, then links, so that nothing is written through one. Raises Damaged."""
        self.drafts.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders: list[tuple[Path, TreeEntry]] = []
        links: list[tuple[Path, TreeEntry]] = []
        with ThreadPoolExecutor(WORKERS) as pool:
            waiting: list[Future] = []
            for line in lines:
                relative, entry = parse(line)
                path = self._path(relative)
                if entry.kind == "d":
                    path.mkdir(mode=0o700, parents=True, exist_ok=True)
                    folders.append((path, entry))
                elif entry.kind == "l":
                    links.append((path, entry))
                else:
                    waiting.append(pool.submit(self._file, path, entry))
                    waiting = [future for future in waiting if not future.done() or future.result()]
            for future in waiting:
                future.result()
        for path, entry in links:
            self._link(path, entry)
        for path, entry in reversed(folders):  # the times of a folder change with what is written into it
            self._finish(path, entry)

    def _path(self, relative: str) -> Path:
        """Return where an entry is written. Raises Damaged for one that is not below the root."""
        if not relative or any(part in {"", ".", ".."} or "\0" in part for part in relative.split("/")):
            raise Damaged(f"the list of files has a path outside of the storage root: {relative!r}")
        return self.root / relative

    def _file(self, path: Path, entry: TreeEntry) -> None:
        with contextlib.suppress(OSError):
            info = path.lstat()
            if stat.S_ISREG(info.st_mode) and (info.st_size, info.st_mtime_ns) == (entry.size, entry.changed):
                return self._finish(path, entry)  # written before this restore was interrupted
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.drafts / secrets.token_hex(12)
        whole = hashlib.sha256()
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for name, offset, length in entry.pieces:
                if name == sparse.HOLE:
                    whole.update(sparse.mark(length))
                    file.seek(length, os.SEEK_CUR)
                    continue
                data = self.objects.get(name)[offset : offset + length]
                whole.update(data)
                if data == ZEROS[: len(data)]:
                    file.seek(len(data), os.SEEK_CUR)  # backups of earlier releases have holes as zeros
                else:
                    file.write(data)
            file.truncate(entry.size)
        if whole.hexdigest() != entry.sha256:
            raise Damaged(f"{path.relative_to(self.root)} is damaged in the backup")
        self._finish(draft, entry)
        draft.replace(path)

    def _link(self, path: Path, entry: TreeEntry) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        path.symlink_to(entry.target)
        if self.owns:
            os.lchown(path, entry.user, entry.group)

    def _finish(self, path: Path, entry: TreeEntry) -> None:
        if self.owns:
            os.lchown(path, entry.user, entry.group)
        os.chmod(path, entry.mode)
        os.utime(path, ns=(entry.changed, entry.changed))


def compare(root: Path, lines: Iterator[bytes]) -> Iterator[str]:
    """Yield how the files below a root differ from a backup's."""
    for line in lines:
        relative, entry = parse(line)
        path = root / relative
        try:
            info = path.lstat()
            if entry.kind == "l":
                same = os.readlink(path) == entry.target
            elif entry.kind == "d":
                same = stat.S_ISDIR(info.st_mode)
            else:
                with path.open("rb") as file:
                    same = sparse.checksum(file, entry.pieces) == entry.sha256
        except OSError as problem:
            yield f"{relative}: {problem.strerror}"
            continue
        if not same:
            yield f"{relative}: other content"
        elif stat.S_IMODE(info.st_mode) != entry.mode and entry.kind != "l":
            yield f"{relative}: mode {stat.S_IMODE(info.st_mode):o}, not {entry.mode:o}"
