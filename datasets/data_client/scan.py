"""Finds the files to upload, and rejects names that the platform does not accept. Used by upload.py."""

from __future__ import annotations

import os
import stat

from .errors import LOCAL, Failure

# What desktops and version control leave in folders; mlp/static/mlp/choosing.js has the same.
LITTER = frozenset({
    ".DS_Store", ".Spotlight-V100", ".Trashes", ".fseventsd", "__MACOSX", "Thumbs.db", "ehthumbs.db", "desktop.ini",
    "$RECYCLE.BIN", "System Volume Information", ".git", ".hg", ".svn",
})  # fmt: skip
DRAFTS = ".mlp-download"  # in a folder that is being downloaded: the incomplete files


class Local:
    """A file on this machine, as it was when the folder was read."""

    def __init__(self, path: str, source: str, info: os.stat_result):
        self.path, self.source = path, source
        self.size, self.mtime_ns = info.st_size, info.st_mtime_ns

    def changed(self, info: os.stat_result) -> bool:
        """Return whether the file has changed since the folder was read."""
        return (info.st_size, info.st_mtime_ns) != (self.size, self.mtime_ns)


def scan(folder: str, follow: bool, say, everything: bool = False) -> list:
    """Return all regular files below `folder` (or the one file), sorted by path; `say(line)` reports skipped ones.

    Without `everything` what desktops and version control leave there is skipped.
    """
    try:
        top = os.stat(folder)
    except OSError as problem:
        raise Failure(LOCAL, f"{folder}: {problem.strerror}")
    if stat.S_ISREG(top.st_mode):
        return [Local(_checked(os.path.basename(folder), folder), folder, top)]
    if not stat.S_ISDIR(top.st_mode):
        raise Failure(LOCAL, f"{folder}: not a file or folder")
    files: list = []
    waiting = [(folder, "", ((top.st_dev, top.st_ino),))]
    while waiting:
        here, relative, above = waiting.pop()
        for entry in _entries(here):
            path = relative + entry.name
            if path == DRAFTS and entry.is_dir(follow_symlinks=False):
                say(f"skipped {DRAFTS}: left by an interrupted download")
                continue
            if not everything and is_litter(entry.name):
                say(f"skipped {_shown(path)}: left by a desktop or by version control (use --all to upload it)")
                continue
            if entry.is_symlink() and not follow:
                say(f"skipped {_shown(path)}: symbolic link (use --follow to follow links)")
                continue
            try:
                info = entry.stat()
            except OSError as problem:
                raise Failure(LOCAL, f"{_shown(entry.path)}: {problem.strerror}")
            if stat.S_ISDIR(info.st_mode):
                if (info.st_dev, info.st_ino) in above:
                    say(f"skipped {_shown(path)}: symbolic link to a parent folder")
                    continue
                waiting.append((entry.path, path + "/", (*above, (info.st_dev, info.st_ino))))
            elif stat.S_ISREG(info.st_mode):
                files.append(Local(_checked(path, entry.path), entry.path, info))
            else:
                say(f"skipped {_shown(path)}: not a regular file")
    return sorted(files, key=lambda local: local.path)


def is_litter(name: str) -> bool:
    """Return whether a file or folder of that name is left by macOS (`._*` beside each file), Windows, git and such."""
    return name in LITTER or name.startswith("._")


def _entries(folder: str) -> list:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as problem:
        raise Failure(LOCAL, f"{_shown(folder)}: {problem.strerror}")


def _checked(path: str, source: str) -> str:
    """Return the path if the platform accepts such names. Raises Failure, which names the file, before any transfer."""
    wrong = ""
    try:
        parts = [len(part.encode("utf-8")) for part in path.split("/")]
        if max(parts) > 255:
            wrong = "a part of the path has more than 255 bytes"
        elif sum(parts) + len(parts) > 1900 or len(parts) > 100:
            wrong = "the path is too long"
    except UnicodeEncodeError:
        wrong = "the name is not valid UTF-8"
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        wrong = "the name contains control characters"
    if wrong:
        raise Failure(LOCAL, f"{_shown(source)}: {wrong}; rename it")
    return path


def _shown(path: str) -> str:
    """Return the path as text that can be printed."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
