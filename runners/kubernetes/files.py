"""Files that the platform writes into folders where the run may write as well."""

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
    """Open the file for reading and appending, created if missing, and yield its descriptor. Symbolic links are not
    followed, neither for the file nor for the folders below `root`: a script may have put them there. Raises OSError.
    """
    below_root = path.is_relative_to(root)
    parts = path.relative_to(root).parts if below_root else (path.name,)
    folder = os.open(root if below_root else path.parent, os.O_DIRECTORY | os.O_CLOEXEC)
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
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield file
    finally:
        os.close(file)
