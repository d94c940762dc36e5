"""What not every machine allows: a disk of our own that can be filled, and a clock that can jump."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

DISK_BYTES = 3 << 30


class Disk:
    """A small file system, mounted from a sparse file. `mount` returns None where that is not allowed."""

    def __init__(self, folder: Path, image: Path):
        self.folder, self.image = folder, image

    @classmethod
    def mount(cls, folder: Path) -> Disk | None:
        """Make and mount the file system at this empty folder."""
        image = folder.with_name(folder.name + ".img")
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        for command in (["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(folder)]):
            try:
                done = subprocess.run(command, capture_output=True)
            except FileNotFoundError:
                done = None
            if done is None or done.returncode:
                image.unlink()
                return None
        return cls(folder, image)

    def unmount(self) -> None:
        """End the mount; the image stays."""
        subprocess.run(["umount", str(self.folder)], check=True)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Take all free space while the block runs."""
        ballast = self.folder / "ballast"
        try:
            with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(self.folder).free)
                while True:  # the rest, block by block
                    file.write(bytes(4096))
            yield
        finally:
            ballast.unlink(missing_ok=True)


class Clock:
    """The wall clock of the platform's processes in Python, by a small library that is preloaded into them (clock.c).
    The servers that they use, and the runs, keep the machine's.
    """

    def __init__(self, folder: Path, preloaded: Path):
        self.file, self.preloaded = folder / "clock", preloaded
        self.file.write_bytes(bytes(8))

    @classmethod
    def build(cls, folder: Path) -> Clock | None:
        """Make the library in this folder; return None where there is no C compiler."""
        library = folder / "clock.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(Path(__file__).with_name("clock.c"))]
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError:
            return None
        return cls(folder, library)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.preloaded), "STORM_CLOCK": str(self.file)}

    def set(self, seconds: int) -> None:
        """Set how far the clock is ahead. All processes see it at once."""
        with self.file.open("r+b") as file:
            file.write(struct.pack("q", seconds))
