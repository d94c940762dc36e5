"""Files that the platform writes into folders of a run, which the run itself may write as well."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def opened(path: Path, root: Path) -> Iterator[int]:
    """The file as an open descriptor, made where it is not there, to be read and appended to. No link that a script has
    put in the place of the file, or of a folder on the way below `root`, is followed. Raises OSError.
    """
    inside = path.is_relative_to(root)
    parts = path.relative_to(root).parts if inside else (path.name,)
    folder = os.open(root if inside else path.parent, os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
            below = os.open(part, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        file = os.open(parts[-1], FLAGS, 0o644, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "is no file", str(path))
        yield file
    finally:
        os.close(file)
