"""The files of a run's artifacts on disk: stored, listed, opened and removed, with their space accounted for.

A file is written elsewhere on the same file system and renamed into place, so a reader sees the old file or the new
one. Folders are opened one from the other and never through a link, since a job's script may write there, too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from errno import EDQUOT, EEXIST, EISDIR, ELOOP, ENOSPC, ENOTDIR, ENOTEMPTY
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote

from datasets.webdav.admission import clear
from jobs.models import Job
from kernel import disk, names, storage
from kernel.errors import Refused

from . import space

MAX_BYTES = 2000  # of a path
MAX_FOLDERS = 90
MAX_LISTED = 100_000  # entries of one folder
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ListedFile(NamedTuple):
    """A file or folder: its name, and the size of a file."""

    name: str
    is_folder: bool
    size: int


def checked(path: str) -> str:
    """Return the path of an artifact below a run's folder. Raises Refused."""
    names.file_path(path)
    if len(path.encode()) > MAX_BYTES or path.count("/") > MAX_FOLDERS:
        raise Refused(
            "must have at most %(bytes)s bytes and %(folders)s folders",
            field="path", bytes=MAX_BYTES, folders=MAX_FOLDERS,
        )  # fmt: skip
    return path


def put(job: Job, path: str, body: Path) -> None:
    """Move the file `body` of the spool to `path` of the run's output, such as `artifacts/model/MLmodel`; one that is
    there is replaced.

    Raises NoRoom or DiskFull; Missing for a run that is being deleted; Refused where something is in the way.
    """
    *folders, name = checked(path).split("/")
    size = body.stat(follow_symlinks=False).st_size
    with space.writing(job) as locked, _as_refusals(), _folder(job, folders, make=True) as parent:
        old = _entry(parent, name)
        if old is not None and stat.S_ISDIR(old.st_mode):
            raise Refused("a folder of that name already exists", field="path")
        locked.charge(size - (old.st_size if old is not None and stat.S_ISREG(old.st_mode) else 0))
        body.chmod(0o644)
        os.rename(body, name, dst_dir_fd=parent)


def put_bytes(job: Job, path: str, data: bytes) -> None:
    """Store a small artifact, as `put` does."""
    draft = storage.spool_dir() / f"artifact-{secrets.token_hex(12)}"
    try:
        draft.write_bytes(data)
        put(job, path, draft)
    finally:
        draft.unlink(missing_ok=True)


def remove(job: Job, path: str) -> bool:
    """Remove a file or folder; return whether there was one."""
    *folders, name = checked(path).split("/")
    trash = storage.spool_dir() / f"trash-{secrets.token_hex(16)}"
    try:
        with space.writing(job) as locked, _folder(job, folders) as parent:
            os.rename(name, trash, src_dir_fd=parent)
            locked.charge(-_bytes(trash))
    except (FileNotFoundError, NotADirectoryError):
        return False
    clear(trash)
    return True


def size(job: Job, path: str) -> int:
    """Return the bytes of the file at a path; 0 where there is none."""
    *folders, name = checked(path).split("/")
    try:
        with _folder(job, folders) as parent:
            entry = _entry(parent, name)
    except OSError:
        return 0
    return entry.st_size if entry is not None and stat.S_ISREG(entry.st_mode) else 0


def listing(job: Job, path: str) -> list[ListedFile] | None:
    """Return what is in a folder, the whole output for "", sorted; None where there is no folder. Links and other kinds
    are left out.
    """
    listed = []
    try:
        with _folder(job, checked(path).split("/") if path else []) as here, os.scandir(here) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError, UnicodeEncodeError):
                    entry.name.encode()
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode):
                        folder = stat.S_ISDIR(info.st_mode)
                        listed.append(ListedFile(entry.name, folder, 0 if folder else info.st_size))
                if len(listed) > MAX_LISTED:
                    raise Refused("the folder has more than %(limit)s files", field="path", limit=MAX_LISTED)
    except OSError:
        return None
    return sorted(listed)


def exists(job: Job, path: str) -> bool:
    """Return whether there is a file or folder."""
    with contextlib.suppress(Refused):
        return storage.status(_top(job), checked(path)) is not None
    return False


def opened(job: Job, path: str) -> BinaryIO | None:
    """Open a file for reading; return None where there is none."""
    return storage.open_file(_top(job), checked(path))


def address(job: Job, path: str) -> str:
    """Return nginx's internal address of a file (supervision/gateway.conf.tmpl)."""
    return quote(f"/-jobs/{job.user.username}/{job.name}/{path}")


@contextlib.contextmanager
def _as_refusals() -> Iterator[None]:
    """Raise what is wrong with a path as Refused, and DiskFull for a full disk."""
    try:
        yield
    except OSError as problem:
        if problem.errno in (ENOTDIR, ELOOP):
            raise Refused("a parent folder is a file or a symbolic link", field="path") from None
        if problem.errno in (EISDIR, ENOTEMPTY, EEXIST):
            raise Refused("a folder of that name already exists", field="path") from None
        if problem.errno in (ENOSPC, EDQUOT):
            raise disk.DiskFull(disk.FULL) from None
        raise


def _top(job: Job) -> Path:
    return storage.job_dir(job.user.username, job.name)


@contextlib.contextmanager
def _folder(job: Job, steps: list[str], *, make: bool = False) -> Iterator[int]:
    """Open a folder of the run's output, and give its descriptor; `make` makes missing ones. Raises OSError."""
    top = _top(job)
    if make:
        top.mkdir(parents=True, exist_ok=True)
    here = os.open(top, FOLDER)
    try:
        for step in steps:
            try:
                below = os.open(step, FOLDER, dir_fd=here)
            except FileNotFoundError:
                if not make:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, 0o755, dir_fd=here)
                below = os.open(step, FOLDER, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _entry(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    info = path.lstat()
    if stat.S_ISDIR(info.st_mode):
        return storage.tree_size(path)
    return info.st_size if stat.S_ISREG(info.st_mode) else 0
