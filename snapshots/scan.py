"""Lists a script's folder, within bounds. Only folders and `.mlpignore` are opened; no link is followed."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from kernel import names, storage
from kernel.errors import Refused

from . import ignoring
from .manifest import Manifest, Skipped, shown

MAX_SEEN = 20_000  # entries that are looked at
MAX_SKIPPED = 2_000  # entries that a manifest lists as not kept
LEVELS = 50
TEXT = re.compile(
    r"\.(py|pyi|ipynb|sh|bash|ya?ml|jsonl?|toml|ini|cfg|conf|env|txt|md|rst|sql|r|jl|lua|js|ts|c|h|cc|cpp|hpp|cu|cuh|java"
    r"|rs|go|proto|html|css|xml|csv|tsv|j2|jinja|tmpl|patch|diff|lock|mlpignore)$|^[^.]+$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Found:
    """A regular file that a snapshot may save."""

    path: str
    size: int
    executable: bool
    state: tuple[int, int, int, int]  # inode, size, mtime and ctime in ns: what changes with the content

    @property
    def is_text(self) -> bool:
        return TEXT.search(os.path.basename(self.path)) is not None


@dataclass
class Listing:
    """The files found, and the manifest so far: what is not saved in any case."""

    manifest: Manifest
    files: list[Found] = field(default_factory=list)

    def skip(self, path: str, reason: str, size: int = 0) -> None:
        """List an entry as not saved. Beyond the limit, and for names that cannot be stored, list only its folder."""
        if reason == "name":
            self._open(os.path.dirname(path.rstrip("/")))
            path = shown(path)
        if len(self.manifest.skipped) < MAX_SKIPPED:
            self.manifest.skipped.append(Skipped(path, reason, size))
        else:
            self.reopen(os.path.dirname(path.rstrip("/")))

    def reopen(self, folder: str) -> None:
        """Mark a folder as one that has more entries than are listed."""
        self.manifest.more += 1
        self._open(folder)

    def _open(self, folder: str) -> None:
        if folder not in self.manifest.open:
            self.manifest.open.append(folder)


def state_of(info: os.stat_result) -> tuple[int, int, int, int]:
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def file_of(path: str, info: os.stat_result) -> Found:
    return Found(path, info.st_size, bool(info.st_mode & 0o100), state_of(info))


def scan(home: Path, entry: str) -> Listing:
    """List the folder of the script `entry`, nearest files first. Raises Refused for an invalid `.mlpignore`."""
    top = os.path.dirname(entry)
    with contextlib.ExitStack() as stack:
        file = storage.open_file(home, os.path.join(top, ignoring.NAME))
        ignored = ignoring.read(stack.enter_context(file) if file else None)
    listing = Listing(Manifest(top))
    seen, waiting = 0, deque([top])
    while waiting:
        folder = waiting.popleft()
        if folder != top and (seen >= MAX_SEEN or folder.count("/") - top.count("/") >= LEVELS):
            listing.skip(f"{folder}/", "count" if seen >= MAX_SEEN else "deep")
            continue
        with _opened(home, folder) as handle:
            if handle is None:
                if folder != top:
                    listing.skip(f"{folder}/", "unread")
                continue
            entries = []
            with os.scandir(handle) as each:
                for item in each:
                    if seen >= MAX_SEEN:
                        listing.reopen(folder)
                        break
                    seen += 1
                    entries.append(item)
            for item in sorted(entries, key=lambda item: item.name):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    _sort(listing, item, os.path.join(folder, item.name), top, ignored, waiting)
    return listing


def _sort(listing: Listing, item: os.DirEntry, path: str, top: str, ignored, waiting: deque) -> None:
    """Assign an entry to the files, to what is not saved, or to the folders to scan."""
    info = item.stat(follow_symlinks=False)
    is_folder = stat.S_ISDIR(info.st_mode)
    shape = f"{path}/" if is_folder else path
    if not _has_a_legal_name(item.name):
        return listing.skip(shape, "name")
    if ignored.match_file(shape[len(top) + 1 :] if top else shape):
        if item.name != "__pycache__":
            listing.skip(shape, "ignored", 0 if is_folder else info.st_size)
        return None
    if is_folder:
        return waiting.append(path)
    if stat.S_ISLNK(info.st_mode):
        return listing.skip(path, "link")
    if not stat.S_ISREG(info.st_mode):
        return listing.skip(path, "special")
    return listing.files.append(file_of(path, info))


def _has_a_legal_name(name: str) -> bool:
    try:
        return bool(names.file_path(name))
    except Refused:
        return False


@contextlib.contextmanager
def _opened(home: Path, folder: str):
    """Yield a descriptor of the folder below home; each component is opened relative to its parent. None if it does not
    exist.
    """
    here: int | None = None
    try:
        with contextlib.suppress(OSError):
            here = os.open(home, storage.FOLDER)
            for part in filter(None, folder.split("/")):
                above, here = here, None
                try:
                    here = os.open(part, storage.FOLDER, dir_fd=above)
                finally:
                    os.close(above)
        yield here
    finally:
        if here is not None:
            os.close(here)


def script_of(home: Path, entry: str) -> Found:
    """Return the script itself. Raises Refused if it does not exist."""
    with contextlib.suppress(OSError):
        info = storage.safe_join(home, entry).lstat()
        if stat.S_ISREG(info.st_mode):
            return file_of(entry, info)
    raise Refused("the script %(entry)s does not exist; upload it to .home first", field="entry", entry=entry)
