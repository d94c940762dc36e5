"""Where a model comes from, and how its files get into its folder. Used by lifecycle and launching; holds no lock.

A source may belong to somebody who changes it meanwhile, so every step goes from folder to folder by file descriptor
and never through a link: what is copied is what lay there as a regular file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from kernel import names, storage
from kernel.errors import Refused

PIECE = 1 << 20
PLATFORM_FOLDERS = ("log", "metrics")  # of a job: not its output


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
    """Where the source lies. Raises Refused when nothing is there, or a link is in the way."""
    kind, job, path = parse(src)
    base = storage.home_dir(user) if kind == "home" else storage.job_dir(user, job)
    try:
        found = storage.safe_join(base, path) if path else base
    except Refused as refused:
        raise Refused(refused.msg, field="src")
    if not found.exists():
        raise Refused("%(src)s does not exist", field="src", src=src)
    return found


def size(source: Path) -> int:
    """Bytes in the regular files of the source."""
    total = 0
    for _path, file in _open_files(source):
        total += os.fstat(file).st_size
    return total


def copy(source: Path, target: Path) -> dict[str, dict]:
    """Copies all regular files to `target`, complete or not at all: to a folder beside it, then by a rename.

    Returns {path: {"size", "sha256"}}. What stood at `target` is replaced. Raises OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    side = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    told = {}
    try:
        side.mkdir(mode=0o755)
        for path, file in _open_files(source):
            place = side / path
            place.parent.mkdir(parents=True, exist_ok=True)
            digest, count = hashlib.sha256(), 0
            with place.open("xb") as out:
                while piece := os.read(file, PIECE):
                    out.write(piece)
                    digest.update(piece)
                    count += len(piece)
                out.flush()
                os.fsync(out.fileno())
            told[path] = {"size": count, "sha256": digest.hexdigest()}
        storage.remove_tree(target)
        side.rename(target)
    finally:
        storage.remove_tree(side)
    return told


def sweep(target: Path) -> None:
    """Removes what copies that were killed have left beside `target`."""
    for rest in target.parent.glob(f".{target.name}.*.part"):
        storage.remove_tree(rest)


def _open_files(source: Path) -> Iterator[tuple[str, int]]:
    """(relative path, open descriptor) of each regular file; the descriptor is closed after its turn."""
    with _folder(source.parent) as parent:
        info = os.stat(source.name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(info.st_mode):
            yield from _one(parent, source.name, source.name)
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        top = os.open(source.name, flags, dir_fd=parent)
    is_workspace = source.parent.parent == storage.root() / "jobs"
    try:
        for folder, folders, filenames, handle in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            if is_workspace and folder == ".":
                folders[:] = [name for name in folders if name not in PLATFORM_FOLDERS]
            folders.sort()
            for filename in sorted(filenames):
                yield from _one(handle, filename, os.path.normpath(os.path.join(folder, filename)))
    finally:
        os.close(top)


def _one(folder: int, name: str, path: str) -> Iterator[tuple[str, int]]:
    try:
        path.encode()
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except (OSError, UnicodeEncodeError):  # a link, a device, gone meanwhile, or a name that no interface could say
        return
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            yield path, file
    finally:
        os.close(file)


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    """The folder, opened step by step below the root without following a link."""
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
