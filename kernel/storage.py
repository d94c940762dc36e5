"""The layout of the storage root, and safe ways to access it. Used by every app; holds no lock."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from django.conf import settings

from . import names
from .errors import Refused
from .messages import Message

HOLES = 1 << 20  # a file that has more than this in holes is sparse
LEVELS = 100  # of folders: each level that is walked holds a descriptor
ISOLATION_PATH = re.compile(r"(bwrap: [^/\n]*)/[^\n]*?(?=: |$)", re.MULTILINE)
ODD = re.compile(r"[\x01-\x1f\x7f\udc80-\udcff]|\\(?=x(?:[01][0-9a-f]|5c|7f|[89a-f][0-9a-f]))")
ESCAPE = re.compile(r"\\x((?!00)[01][0-9a-f]|5c|7f|[89a-f][0-9a-f])")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
REFERENCE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def root() -> Path:
    return Path(settings.MLP_ROOT)


def without_root(text: str) -> str:
    """Return a message or text without the host's paths: of the storage, the platform's code and its Python, and of
    what the isolation could not find; users read these reasons.
    """
    if isinstance(text, Message):
        return text.mapped(_without_host_paths)
    return _without_host_paths(text)


def _without_host_paths(text: str) -> str:
    text = ISOLATION_PATH.sub(r"\1…", text)
    runs = str(Path(settings.RUN_PYTHON).parent.parent)  # the environment of runs
    for folder in sorted(
        {str(root()), str(settings.BASE_DIR), sys.prefix, runs} - {"/", "/usr"}, key=len, reverse=True
    ):
        text = text.replace(f"{folder}/", "")
    return text


def dataset_dir(user: str, dataset: str) -> Path:
    return root() / "datasets" / user / dataset


def dataset_version_dir(user: str, dataset: str, number: int) -> Path:
    """Return the folder of a version that a newer one has replaced."""
    return root() / "datasets" / user / ".versions" / dataset / str(number)


def dataset_mount_dir(user: str, dataset: str, number: int) -> Path:
    """Return the folder of links to a version's files that runs read, at the same place after it has been replaced."""
    return root() / "datasets" / ".mounts" / user / dataset / str(number)


def dataset_cache_dir() -> Path:
    """Return the folder of the files of buckets that runs read: on the datasets' file system."""
    return root() / "datasets" / ".cache"


def home_dir(user: str) -> Path:
    """Return the folder of the user's scripts and initial models; created on demand, since it always exists."""
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


def status(base: Path, relative: str) -> os.stat_result | None:
    """Return the status of `base/relative`, None where nothing is there. Raises Refused for an illegal path, and for a
    symbolic link on the way or at its end.

    Each step is looked at from the one before it, so that nothing outside of `base` is.
    """
    names.file_path(relative)
    here = -1
    try:
        here = os.open(base, REFERENCE)
        *folders, name = relative.split("/")
        for folder in folders:
            _no_link(folder, here)
            below = os.open(folder, REFERENCE, dir_fd=here)
            os.close(here)
            here = below
        return _no_link(name, here)
    except (FileNotFoundError, NotADirectoryError):
        return None
    finally:
        if here >= 0:
            os.close(here)


def _no_link(name: str, folder: int) -> os.stat_result:
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(info.st_mode):
        raise Refused("must not go through a symbolic link", field="path")
    return info


def safe_join(base: Path, relative: str) -> Path:
    """Return `base/relative`, below `base` with no symbolic link on the way. Raises Refused.

    A run that may write below `base` can change that at any time: then open the file step by step, as `open_file` does.
    """
    status(base, relative)
    return base / relative


def open_file(base: Path, relative: str) -> BinaryIO | None:
    """Open the regular file `base/relative` for reading; return None when there is none. Raises Refused for an illegal
    path.

    Each step is opened from the one before it and no link is followed, so a process that writes below `base` cannot
    swap one between the check and the opening.
    """
    names.file_path(relative)
    return _open_file(base, relative)


def _open_file(base: Path, relative: str) -> BinaryIO | None:
    *folders, name = relative.split("/")
    here = -1
    try:
        here = os.open(base, FOLDER)
        for folder in folders:
            below = os.open(folder, FOLDER, dir_fd=here)
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


def shown(path: str) -> str:
    """Return a path on disk as interfaces show it: each control character, and each byte that is not UTF-8, as `\\x1b`.
    `on_disk` is the inverse.
    """
    return ODD.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", path)


def on_disk(path: str) -> str:
    """Return the path on disk of a path that `shown` has returned."""
    return ESCAPE.sub(lambda match: bytes.fromhex(match[1]).decode(errors="surrogateescape"), path)


def open_listed(base: Path, path: str) -> BinaryIO | None:
    """Open the file at a path that `listed` has returned, as `open_file` does."""
    names.file_path(ESCAPE.sub("_", path))
    return _open_file(base, on_disk(path))


def listed(base: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Return what `files` does with all names, as interfaces show them."""
    return ((shown(path), info) for path, info in files(base, every=True))


def files(base: Path, every: bool = False) -> Iterator[tuple[str, os.stat_result]]:
    """Return the regular files below `base` as (relative path, stat), sorted by path; links are neither followed nor
    listed.

    Names that are not UTF-8 are left out unless `every` is set, and so is what is nested more than LEVELS deep: a
    process that writes below `base` may nest without end.
    """
    for folder, _folders_here, filenames, here in _folders(base):
        for filename in sorted(filenames):
            path = os.path.normpath(os.path.join(folder, filename))
            if not every and any(0xD800 <= ord(char) <= 0xDFFF for char in path):
                continue
            with contextlib.suppress(OSError):  # removed meanwhile
                info = os.stat(filename, dir_fd=here, follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    yield path, info


class LeftOut(NamedTuple):
    """What `files` does not return: its path, and where it leads if it is a link. `deep` is a folder at LEVELS."""

    path: str
    target: str = ""
    deep: bool = False


def left_out(base: Path) -> Iterator[LeftOut]:
    """Yield the links, the sockets and other special files, and the folders below `base` that `files` leaves out, with
    all names.
    """
    for folder, folders, filenames, here in _folders(base):
        for name in sorted([*folders, *filenames]):
            path = os.path.normpath(os.path.join(folder, name))
            with contextlib.suppress(OSError):  # removed meanwhile
                info = os.stat(name, dir_fd=here, follow_symlinks=False)
                if stat.S_ISLNK(info.st_mode):
                    yield LeftOut(path, os.readlink(name, dir_fd=here))
                elif stat.S_ISDIR(info.st_mode):
                    if folder.count("/") >= LEVELS:
                        yield LeftOut(path, deep=True)
                elif not stat.S_ISREG(info.st_mode):
                    yield LeftOut(path)


def _folders(base: Path) -> Iterator[tuple[str, list[str], list[str], int]]:
    """Yield (path relative to `base`, names of folders and links to folders, other names, descriptor) of `base` and of
    each folder below.

    Folders are opened from the one above, so none can be swapped for a link in the meantime.
    """
    try:
        top = os.open(base, FOLDER)
    except OSError:
        return
    try:
        for folder, folders, filenames, here in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            folders.sort()
            yield folder, folders, filenames, here
            if folder.count("/") >= LEVELS:
                folders.clear()
    finally:
        os.close(top)


def size_on_disk(info: os.stat_result) -> int:
    """Return the bytes of a file without its holes. Small differences are the file system's: it may store a short file
    with its name, or count blocks only once they are written.
    """
    stored = info.st_blocks * 512
    return stored if stored + HOLES < info.st_size else info.st_size


def tree_size(base: Path, on_disk: bool = False) -> int:
    """Return the bytes in all regular files below `base`, whatever their names; 0 when it does not exist. With
    `on_disk` holes of sparse files do not count.
    """
    total = 0
    for _folder, _folders_here, filenames, here in _folders(base):
        for filename in filenames:
            with contextlib.suppress(OSError):
                info = os.stat(filename, dir_fd=here, follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    total += size_on_disk(info) if on_disk else info.st_size
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
    remove(path)


def remove(path: Path) -> None:
    """Remove a folder with all that a run may have made in it: nested without end, or closed to its owner. A missing
    one is no error; a link is unlinked.
    """
    with contextlib.suppress(FileNotFoundError):
        if path.is_symlink():
            return path.unlink()
        top = open_folder(str(path), None)
        try:
            while os.listdir(top):
                _empty(top, top, 0)
        finally:
            os.close(top)
        path.rmdir()


def clear(path: Path, *, keep: Collection[str] = (), only: Collection[str] = ()) -> None:
    """Remove what is in a folder that a run may have written: all but `keep`, or `only` these names. A missing folder
    is no error; links are removed, not followed.
    """
    try:
        top = open_folder(str(path), None)
    except FileNotFoundError:
        return
    except OSError:  # it is no folder: a run has replaced it
        path.unlink(missing_ok=True)
        return
    try:
        with os.scandir(top) as listing:
            entries = [entry for entry in listing if (entry.name in only if only else entry.name not in keep)]
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=top)
                    continue
                below = open_folder(entry.name, top)
                try:
                    while os.listdir(below):
                        _empty(below, below, 0)
                finally:
                    os.close(below)
                os.rmdir(entry.name, dir_fd=top)
    finally:
        os.close(top)


def _empty(folder: int, top: int, level: int) -> None:
    """Remove what is in the open folder. Folders at LEVELS are moved to `top`, where the next round finds them."""
    with os.scandir(folder) as listing:
        entries = list(listing)
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
            elif level == LEVELS:
                os.rename(entry.name, f".{secrets.token_hex(12)}", src_dir_fd=folder, dst_dir_fd=top)
            else:
                below = open_folder(entry.name, folder)
                try:
                    _empty(below, top, level + 1)
                finally:
                    os.close(below)
                os.rmdir(entry.name, dir_fd=folder)


def open_folder(name: str, above: int | None) -> int:
    """Open a folder, and make it readable and writable for its owner before."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)
