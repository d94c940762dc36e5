"""What is to be uploaded: the files below a folder, and the names the platform would not take. Used by upload.py."""

from __future__ import annotations

import os
import stat

from .errors import LOCAL, Failure

DRAFTS = ".mlp-download"  # at the top of a folder that is being downloaded: what has come so far


class Local:
    """A file on this machine, as it was when the folder was read."""

    def __init__(self, path: str, source: str, info: os.stat_result):
        self.path, self.source = path, source
        self.size, self.mtime_ns = info.st_size, info.st_mtime_ns

    def changed(self, info: os.stat_result) -> bool:
        return (info.st_size, info.st_mtime_ns) != (self.size, self.mtime_ns)


def scan(folder: str, follow: bool, say) -> list:
    """All regular files below `folder` (or the one file), sorted by path. `say(line)` hears what is skipped."""
    try:
        top = os.stat(folder)
    except OSError as problem:
        raise Failure(LOCAL, f"{folder}: {problem.strerror}")
    if stat.S_ISREG(top.st_mode):
        return [Local(_checked(os.path.basename(folder), folder), folder, top)]
    if not stat.S_ISDIR(top.st_mode):
        raise Failure(LOCAL, f"{folder}: neither a folder nor a file")
    found: list = []
    waiting = [(folder, "", ((top.st_dev, top.st_ino),))]
    while waiting:
        here, relative, above = waiting.pop()
        for entry in _entries(here):
            path = relative + entry.name
            if path == DRAFTS and entry.is_dir(follow_symlinks=False):
                say(f"skipped {DRAFTS}: left by a download that was cut off")
                continue
            if entry.is_symlink() and not follow:
                say(f"skipped {_shown(path)}: a symbolic link (--follow goes through links)")
                continue
            try:
                info = entry.stat()
            except OSError as problem:
                raise Failure(LOCAL, f"{_shown(entry.path)}: {problem.strerror}")
            if stat.S_ISDIR(info.st_mode):
                if (info.st_dev, info.st_ino) in above:
                    say(f"skipped {_shown(path)}: a link back to a folder above it")
                    continue
                waiting.append((entry.path, path + "/", (*above, (info.st_dev, info.st_ino))))
            elif stat.S_ISREG(info.st_mode):
                found.append(Local(_checked(path, entry.path), entry.path, info))
            else:
                say(f"skipped {_shown(path)}: not a regular file")
    return sorted(found, key=lambda local: local.path)


def _entries(folder: str) -> list:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as problem:
        raise Failure(LOCAL, f"{_shown(folder)}: {problem.strerror}")


def _checked(path: str, source: str) -> str:
    """The path, if the platform takes such names. Raises Failure naming the file, before anything is sent."""
    wrong = ""
    try:
        parts = [len(part.encode("utf-8")) for part in path.split("/")]
        if max(parts) > 255:
            wrong = "a part of its name has more than 255 bytes"
        elif sum(parts) + len(parts) > 1900 or len(parts) > 100:
            wrong = "its path is too long"
    except UnicodeEncodeError:
        wrong = "its name is not valid UTF-8"
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        wrong = "its name has control characters"
    if wrong:
        raise Failure(LOCAL, f"{_shown(source)}: {wrong}; rename it")
    return path


def _shown(path: str) -> str:
    """The path as it can be printed anywhere."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
