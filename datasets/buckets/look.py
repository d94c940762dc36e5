"""A program that looks at files of a mounted bucket, and is killed where the mount does not answer: `stat` of such a
one blocks whoever calls it, for hours. It needs nothing but Python (-I -S).

    look.py MOUNT FOLDER [PATH SIZE]…

It exits with 0 where FOLDER, a path below MOUNT, is a folder, and has each file with that size, and none of them is
reached by a symbolic link: a mount may show an object as one, which leads wherever the author of the object wants.
"""

from __future__ import annotations

import os
import stat
import sys


def main(mount: str, folder: str, *files: str) -> int:
    """Return the exit status. Raises OSError."""
    top = os.path.normpath(os.path.join(os.path.realpath(mount), folder))
    if os.path.realpath(top) != top or not os.path.isdir(top):
        return 1
    for path, size in zip(files[::2], files[1::2], strict=True):
        place = os.path.join(top, path)
        info = os.lstat(place)
        if os.path.realpath(place) != place or not stat.S_ISREG(info.st_mode) or info.st_size != int(size):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
