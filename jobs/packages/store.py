"""The environments of packages on disk: {root}/run/packages/{user's number}/{digest}/.

    work/env        the environment, written by the run that installs, mounted read-only by the jobs of its user
    work/packages.txt   what was installed
    install.log     of that run
    base.json       what it was asked for and builds on: {"wanted", "base"}, written before it is installed
    ready.json      it is complete: {"mib", "base"}; its time of change is that of the last use
    failed.json     it could not be installed: {"reason", "at"}

The digest is of everything that the result depends on, so an environment never changes. None of this is in backups:
what is gone is installed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

import runners
from kernel import sanitize, storage
from kernel.errors import Refused
from kernel.messages import Message, restored
from runners import interpreter

VERSION = 1  # of what the digest is made of
MAX_LIST = 1 << 20  # bytes of the list of what was installed
UNUSED_S = 3600  # an environment used within it is not removed for lack of room
ENV, READY, FAILED, LOG, LIST, TEXT = "env", "ready.json", "failed.json", "install.log", "packages.txt", "wanted.txt"
BASE = "base.json"


def top() -> Path:
    return storage.root() / "run" / "packages"


@dataclass(frozen=True)
class Environment:
    """One environment of a user; `number` is the user's key."""

    number: int
    digest: str

    @property
    def folder(self) -> Path:
        return top() / str(self.number) / self.digest

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def tree(self) -> Path:
        return self.work / ENV

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def run_name(self) -> str:
        return f"pkg-{self.number}-{self.digest}"

    @property
    def is_ready(self) -> bool:
        return (self.folder / READY).is_file()

    def installed(self) -> list[str]:
        """Return what was installed, as `name==version`; what a package's set-up executes may have written it."""
        file = storage.open_file(self.work, LIST)
        if file is None:
            return []
        with file:
            return sanitize.text(file.read(MAX_LIST).decode(errors="replace")).splitlines()

    def require_tree(self) -> None:
        """Raise Refused unless the environment is a folder, reached through no link."""
        status = storage.status(self.work, ENV)
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise Refused("the environment is not a folder")

    def publish(self, mib: int) -> None:
        self._write(READY, {"mib": mib, "base": self._read(BASE).get("base", "")})

    def note_base(self, runtime: str, image: str, wanted: str) -> None:
        """Record what it was asked for and what it builds on, before it is installed."""
        self._write(BASE, {"base": base_of(runtime, image), "wanted": wanted})

    @property
    def is_begun(self) -> bool:
        """Whether its installation was begun, and it was not removed since."""
        return (self.folder / BASE).is_file()

    def base(self) -> str:
        """Return the digest of what it builds on; "" where that is not recorded."""
        return str(self._read(BASE).get("base", ""))

    def wanted(self) -> str:
        """Return what it was asked for, one requirement a line; "" where that is not recorded."""
        return str(self._read(BASE).get("wanted", ""))

    def size_mib(self) -> int:
        """Return its size; 0 while it is not complete."""
        return int(self._read(READY).get("mib", 0))

    def times(self) -> tuple[float, float | None]:
        """Return the Unix times of its begin and of its last use, None while it is not complete. Raises OSError."""
        begun = self.folder / BASE
        with contextlib.suppress(FileNotFoundError):
            used = (self.folder / READY).stat().st_mtime
            return (begun.stat().st_mtime if begun.exists() else used), used
        return (begun if begun.exists() else self.folder).stat().st_mtime, None

    def builds_on(self, runtime: str, image: str = "") -> bool:
        """Return whether it is complete and was made for the Python that runs of that runtime or image have now."""
        return self._read(READY).get("base") == base_of(runtime, image)

    def touch(self) -> None:
        """Record that it is used now. Raises FileNotFoundError when it was removed."""
        os.utime(self.folder / READY)

    def note_failure(self, reason: str) -> None:
        message = Message(reason)
        self._write(FAILED, {"reason": str(reason), "message": message.as_data(), "at": time.time()})

    def failure(self) -> tuple[str, float] | None:
        """Return the reason of the last failure and its Unix time."""
        try:
            data = json.loads((self.folder / FAILED).read_bytes())
            return restored(data.get("message"), data["reason"]), float(data["at"])
        except (OSError, ValueError, KeyError):
            return None

    def forget_failure(self) -> None:
        (self.folder / FAILED).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove it; without the mark first, so that no job takes half of it."""
        (self.folder / READY).unlink(missing_ok=True)
        storage.remove_tree(self.folder)

    def _read(self, name: str) -> dict:
        try:
            return json.loads((self.folder / name).read_bytes())
        except (OSError, ValueError):
            return {}

    def _write(self, name: str, value: dict) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        storage.write_atomic(self.folder / name, json.dumps(value).encode())


def environment_of(number: int, wanted: str, runtime: str, image: str = "") -> Environment:
    """Return the environment of a user for resolved requirements and a runtime or image of jobs."""
    facts = [VERSION, wanted, _platform(runtime, image), settings.PIP_INDEX_URL, *settings.PIP_EXTRA_INDEX_URL]
    return Environment(number, _digest(facts))


def base_of(runtime: str, image: str = "") -> str:
    """Return a digest of what the runs of a runtime or image offer to an environment."""
    return _digest(_platform(runtime, image))


def _digest(facts) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _platform(runtime: str, image: str) -> str | list[str]:
    """Return the image of the runs, or else what the Python of runs offers on this machine: its version and packages,
    on which the installation builds.
    """
    if reference := runners.get().facts(runtime, image).get("MLP_IMAGE"):
        return reference
    python = interpreter.of_runs()
    site = python.purelib
    names = sorted(name for name in os.listdir(site) if name.endswith(".dist-info")) if os.path.isdir(site) else []
    return [python.version, python.prefixes[0], *names]


def of_user(number: int) -> list[Environment]:
    """Return the environments of a user, whatever their state."""
    folder = top() / str(number)
    return [Environment(number, name) for name in (os.listdir(folder) if folder.is_dir() else ())]


def incomplete(before: float) -> list[Environment]:
    """Return those that are not complete and were not changed since that Unix time."""
    environments = []
    for folder in top().glob("*/*"):
        with contextlib.suppress(OSError, ValueError):
            if not (folder / READY).exists() and folder.stat().st_mtime < before:
                environments.append(Environment(int(folder.parent.name), folder.name))
    return environments


def everything() -> list[tuple[Environment, float, int]]:
    """Return (environment, Unix time of the last use, MiB) of all complete ones."""
    environments = []
    for mark in top().glob(f"*/*/{READY}"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            environment = Environment(int(mark.parent.parent.name), mark.parent.name)
            environments.append((environment, mark.stat().st_mtime, int(json.loads(mark.read_bytes())["mib"])))
    return environments
