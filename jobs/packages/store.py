"""The environments of packages on disk: {root}/run/packages/{user's number}/{digest}/.

    work/env        the environment, written by the run that installs, mounted read-only by the jobs of its user
    work/packages.txt   what was installed
    install.log     of that run
    ready.json      it is complete: {"mib"}; its time of change is that of the last use
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
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

import runners
from kernel import sanitize, storage
from kernel.errors import Refused
from kernel.messages import Message, restored

VERSION = 1  # of what the digest is made of
MAX_LIST = 1 << 20  # bytes of the list of what was installed
UNUSED_S = 3600  # an environment used within it is not removed for lack of room
ENVIRONMENT = "/opt/packages"  # where runs see it, if the runner can mount it there
ENV, READY, FAILED, LOG, LIST, TEXT = "env", "ready.json", "failed.json", "install.log", "packages.txt", "wanted.txt"


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
        self._write(READY, {"mib": mib})

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

    def _write(self, name: str, value: dict) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        storage.write_atomic(self.folder / name, json.dumps(value).encode())


def environment_of(number: int, wanted: str, runtime: str) -> Environment:
    """Return the environment of a user for resolved requirements and a runtime of jobs."""
    facts = [VERSION, wanted, runners.get().facts(runtime).get("MLP_IMAGE") or _platform(), settings.PIP_INDEX_URL]
    return Environment(number, hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32])


def _platform() -> list[str]:
    """Return what this machine's Python offers: its version and packages, on which the installation builds."""
    site = sysconfig.get_path("purelib")
    names = sorted(name for name in os.listdir(site) if name.endswith(".dist-info")) if os.path.isdir(site) else []
    return [sys.version, sys.prefix, *names]


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
