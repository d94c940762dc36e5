"""The layout of the storage root (contract 9), and safe ways to access it. Used by every app; holds no lock."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from . import names
from .errors import Refused


def root() -> Path:
    return Path(settings.MLP_ROOT)


def dataset_dir(user: str, dataset: str) -> Path:
    return root() / "datasets" / user / dataset


def home_dir(user: str) -> Path:
    """Return the folder of the user's scripts and initial models; created on demand, since it always exists (contract
    3).
    """
    path = root() / "datasets" / user / ".home"
    path.mkdir(parents=True, exist_ok=True)
    return path


def job_dir(user: str, job: str) -> Path:
    return root() / "jobs" / user / job


def model_dir(user: str, model: str) -> Path:
    return root() / "models" / user / model


def log_dir(component: str) -> Path:
    return root() / "log" / component


def spool_dir() -> Path:
    """Return the folder where nginx puts an upload before it is accepted: on the datasets' file system, so that a
    rename is enough.
    """
    path = root() / "datasets" / ".spool"
    path.mkdir(parents=True, exist_ok=True)
    return path


def safe_join(base: Path, relative: str) -> Path:
    """Return `base/relative`, proven to stay below `base` with no symbolic link on the way. Raises Refused."""
    names.file_path(relative)
    path = base
    for part in relative.split("/"):
        path = path / part
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if stat.S_ISLNK(path.lstat().st_mode):
                raise Refused("must not go through a symbolic link", field="path")
    return path


def open_file(base: Path, relative: str) -> BinaryIO | None:
    """Open the regular file `base/relative` for reading; return None when there is none. Raises Refused for an illegal
    path.

    Each step is opened from the one before it and no link is followed, so a process that writes below `base` cannot
    swap one between the check and the opening.
    """
    names.file_path(relative)
    *folders, name = relative.split("/")
    here = -1
    try:
        here = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        for folder in folders:
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = below
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
    except OSError:
        return None
    finally:
        if here >= 0:
            os.close(here)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    return os.fdopen(file, "rb")


def files(base: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Return the regular files below `base` as (relative path, stat), sorted by path; links are neither followed nor
    listed.

    Names that are not UTF-8 are left out, since no interface can express them.
    """
    if not base.is_dir():
        return
    for folder, folders, filenames in os.walk(base, followlinks=False):
        folders.sort()
        for filename in sorted(filenames):
            path = Path(folder) / filename
            if any(0xD800 <= ord(char) <= 0xDFFF for char in str(path)):
                continue
            with contextlib.suppress(FileNotFoundError):
                info = path.lstat()
                if stat.S_ISREG(info.st_mode):
                    yield str(path.relative_to(base)), info


def tree_size(base: Path) -> int:
    """Return the bytes in all regular files below `base`, whatever their names; 0 when it does not exist."""
    total = 0
    for folder, _folders, filenames in os.walk(base, followlinks=False):
        for filename in filenames:
            with contextlib.suppress(FileNotFoundError):
                info = os.lstat(os.path.join(folder, filename))
                total += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return total


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a folder below the root, whatever its files' modes. A missing one is no error; a link is unlinked."""
    if not path.is_relative_to(root()) or path == root():
        raise ValueError(f"refusing to remove {path}: not below the storage root")
    if path.is_symlink():
        path.unlink()
        return
    if not path.exists():
        return

    def unlock_and_retry(function, name, info) -> None:
        if issubclass(info[0], FileNotFoundError):
            return  # another process was faster
        with contextlib.suppress(FileNotFoundError):
            os.chmod(os.path.dirname(name), 0o700)
            if function in {os.unlink, os.rmdir}:
                function(name)
            elif not os.path.islink(name):  # a folder that could not be read
                os.chmod(name, 0o700)
                shutil.rmtree(name)

    shutil.rmtree(path, onerror=unlock_and_retry)
