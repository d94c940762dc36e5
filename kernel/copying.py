"""The source of a model or a dataset, and the copy of its files. Holds no lock.

The owner may change a source meanwhile, so paths are opened folder by folder by file descriptors and never through a
link: only regular files are copied.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from . import disk, names, storage
from .errors import Refused
from .messages import Message

PIECE = 1 << 20
CHANGED = Message("the files changed while they were being copied")
MAX_FILES = 100_000  # of a model: each has a checksum in the database
PLATFORM_FOLDERS = ("log", "metrics")  # of a job: not part of its output
NO_FILE = {errno.ELOOP, errno.ENXIO, errno.ENODEV}  # a link; a socket, or a device without a driver
GONE = {errno.ENOENT, errno.ESTALE}
BESIDE = re.compile(r"\.(.+)\.[0-9a-f]{12}\.part")  # the folder that is copied to, by the name of the target


def parse(src: str) -> tuple[str, str, str]:
    """Return (`jobs` or `home`, the job's name or "", the path or ""). Raises Refused for anything else."""
    kind, _, rest = src.partition("/")
    if kind == "home" and rest:
        return kind, "", names.file_path(rest, "src")
    job, slash, path = rest.partition("/")
    if kind != "jobs" or not job or (slash and not path):
        raise Refused("must be jobs/{job}, jobs/{job}/{path} or home/{path}", field="src")
    names.name(job, "src")
    return kind, job, names.file_path(path, "src") if path else ""


def origin(user: str, src: str) -> Path:
    """Return the path of the source. Raises Refused when it does not exist, or has a link in it."""
    kind, job, path = parse(src)
    base = storage.home_dir(user) if kind == "home" else storage.job_dir(user, job)
    try:
        there = storage.status(base, path) is not None if path else base.is_dir()
    except Refused as refused:
        raise Refused(refused.problem, field="src")
    if not there:
        raise Refused("%(src)s does not exist", field="src", src=src)
    return base / path


def size(source: Path, most: int | None = None) -> int:
    """Return the bytes in the regular files of the source. Raises OSError; Refused where there are more than `most`
    files, MAX_FILES without it.
    """
    total, limit = 0, MAX_FILES if most is None else most
    for number, (_path, file) in enumerate(open_files(source)):
        if number >= limit:
            raise Refused("must have at most %(limit)s files", field="src", limit=limit)
        total += os.fstat(file).st_size
    return total


def copy(
    source: Path, target: Path, size: int, *, summed: bool = True, copied: Callable[[int], object] = lambda _: None,
    left_out: Callable[[str], object] = lambda _: None,
) -> dict[str, dict]:  # fmt: skip
    """Copy all regular files to `target`, atomically: to a folder beside it, which is then renamed.

    `size` bytes are reserved for them: a job that is still running may make a file longer meanwhile, with holes by any
    length at once. `copied` is called with the bytes copied so far, after each MiB; what it raises ends the copy.
    `left_out` is called with the path of what is no regular file, or has a name that the data service refuses. An
    existing `target` is replaced. Returns {path: {"size", "sha256"}} where it is `summed`; a file that has become
    shorter counts as it was read. Raises OSError; DiskFull; Refused where there are more bytes than `size`, or what was
    listed is gone.
    """
    checksums, left = {}, size
    with beside(target) as side:
        for path, file in open_files(source, left_out, True):
            place = side / path
            place.parent.mkdir(parents=True, exist_ok=True)
            digest, before = hashlib.sha256(), left
            with place.open("xb") as out:
                while piece := os.read(file, PIECE):
                    left -= len(piece)
                    if left < 0:
                        raise Refused(CHANGED)
                    disk.require(len(piece))
                    out.write(piece)
                    if summed:
                        digest.update(piece)
                    copied(size - left)
                out.flush()
                os.fsync(out.fileno())
            if summed:
                checksums[path] = {"size": before - left, "sha256": digest.hexdigest()}
    return checksums


@contextlib.contextmanager
def beside(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside the target, which takes its place at the end; of what fails nothing is left."""
    side = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        side.mkdir(mode=0o755, parents=True)
        yield side
        storage.remove_tree(target)
        side.rename(target)
    finally:
        storage.remove_tree(side)


def sweep(target: Path) -> None:
    """Remove what killed copies have left beside `target`."""
    for rest in target.parent.glob(f".{target.name}.*.part"):
        if target_of(rest.name) == target.name:  # not that of `photos.new` for `photos`
            storage.remove_tree(rest)


def target_of(name: str) -> str:
    """Return the name of the target that a folder of this name is being copied to; "" where it is no such folder."""
    beside = BESIDE.fullmatch(name)
    return beside[1] if beside else ""


def open_files(
    source: Path, left_out: Callable[[str], object] = lambda _: None, whole: bool = False,
    empty: Callable[[str], object] = lambda _: None,
) -> Iterator[tuple[str, int]]:  # fmt: skip
    """Yield (relative path, open descriptor) of each regular file; the descriptor is closed after its turn. `empty` is
    called with the path of each folder without entries.

    What cannot be read raises OSError. What is removed meanwhile raises Refused where the `whole` is wanted, else it is
    passed over.
    """
    with _folder(source.parent) as parent:
        info = os.stat(source.name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(info.st_mode):
            yield from _open_file(parent, source.name, source.name, left_out, whole)
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        top = os.open(source.name, flags, dir_fd=parent)
    is_workspace = source.parent.parent == storage.root() / "jobs"

    def failed(problem: OSError) -> None:
        _raise_unless_gone(problem, whole)

    try:
        for folder, folders, filenames, handle in os.fwalk(".", dir_fd=top, follow_symlinks=False, onerror=failed):
            if folder.count("/") > storage.LEVELS:
                raise Refused("must not nest folders more than %(limit)s deep", field="src", limit=storage.LEVELS)
            if not folders and not filenames and folder != ".":
                empty(os.path.normpath(folder))
            if is_workspace and folder == ".":
                folders[:] = [name for name in folders if name not in PLATFORM_FOLDERS]
            for name in sorted(folders):
                with contextlib.suppress(FileNotFoundError):  # which the walk finds next
                    if stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                        folders.remove(name)
                        left_out(os.path.normpath(os.path.join(folder, name)))
            folders.sort()
            for filename in sorted(filenames):
                path = os.path.normpath(os.path.join(folder, filename))
                yield from _open_file(handle, filename, path, left_out, whole)
    finally:
        os.close(top)


def _open_file(
    folder: int, name: str, path: str, left_out: Callable[[str], object], whole: bool
) -> Iterator[tuple[str, int]]:
    try:
        names.file_path(path)
    except Refused:  # it could not be sent
        left_out(path)
        return
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as problem:
        if problem.errno in NO_FILE:
            left_out(path)
        else:
            _raise_unless_gone(problem, whole)
        return
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            yield path, file
        else:
            left_out(path)
    finally:
        os.close(file)


def _raise_unless_gone(problem: OSError, whole: bool) -> None:
    """Raise what a folder or file could not be opened for; for one that is gone Refused, or nothing without `whole`."""
    if problem.errno not in GONE:
        raise problem
    if whole:
        raise Refused(CHANGED)


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    """Yield the folder, opened step by step below the root without following a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    handle = os.open(storage.root(), flags)
    try:
        for part in path.relative_to(storage.root()).parts:
            inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)
