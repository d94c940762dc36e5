"""One part of the platform, and where its files are. The parts are listed in parts.py."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from .launch import recent_starts

# The variables that a server of another project inherits; none is a secret.
PLAIN_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")


def run_dir() -> Path:
    return settings.MLP_ROOT / "run"


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, with mode 600."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


@dataclass(frozen=True)
class Part:
    """A process (with its children) that supervisord keeps running.

    stage        `servers` start first and stop last; `background` stops first, so that no new work begins; `front`
    lively       answers `ready` at once whatever it does, so that silence means that it hangs: see watchdog.py
    ready        raises while the part does not work; None where only /healthz can tell
    ports        what it listens on: (host, port) pairs
    stop_signal  ends it in order. After stop_wait_s seconds it is killed
    rest_signal  ends what a kill of supervisord leaves of it; "" for the same
    first        a listener: ends before the rest of its stage, which what it has begun still needs
    plain        a server that is not ours: it gets none of the platform's environment
    loaded       runs Python with code that supervisord has loaded: see forking.py
    cwd          its working folder, by which its leftovers are recognised; else its own folder below run/parts
    program      for a part whose children leave the process group: the executable they all run
    pid_files    left by a kill, and in the way of the next start
    stale        other files that are left by a kill, and in the way of the next start
    late_ms      how late its timers may fire, so that fewer of them wake it; 0 for the kernel's 50 µs. Not for `loaded`
    configure    renders its configuration and creates its folders, before supervisord starts
    """

    name: str
    command: list[str]
    stage: str
    ready: Callable[[], None] | None = None
    ports: tuple[tuple[str, int], ...] = ()
    stop_signal: str = "TERM"
    stop_wait_s: int = 4
    rest_signal: str = ""
    first: bool = False
    lively: bool = False
    plain: bool = False
    loaded: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    program: str = ""
    pid_files: tuple[Path, ...] = ()
    stale: tuple[Path, ...] = ()
    late_ms: int = 0
    configure: Callable[[], None] | None = None

    @property
    def folder(self) -> Path:
        return run_dir() / "parts" / self.name

    @property
    def log(self) -> Path:
        return settings.MLP_ROOT / "log" / self.name / f"{self.name}.log"

    def prepare(self, parent: Path | None) -> None:
        """Create the part's folders and write its launch.json; `parent` is supervisord's pid file, where the part must
        not outlive supervisord.
        """
        for path in (self.folder, self.log.parent, self.cwd or self.folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.configure:
            self.configure()
        spec = {
            "command": self.command,
            "cwd": os.path.realpath(self.cwd or self.folder),
            "loaded": self.loaded,
            "environment": self.environment,
            "keep": PLAIN_ENVIRONMENT if self.plain else None,
            "stop_signal": self.rest_signal or self.stop_signal,
            "death_signal": (self.rest_signal or self.stop_signal) if parent else "",
            "parent": str(parent or ""),
            "program": self.program,
            "pid_files": [str(path) for path in self.pid_files],
            "stale": [str(path) for path in self.stale],
            "late_ms": self.late_ms,
        }
        write_private(self.folder / "launch.json", json.dumps(spec, indent=1))

    def forget_starts(self) -> None:
        """Reset the count of quick ends: a new `up` starts with no delay."""
        (self.folder / "starts").unlink(missing_ok=True)

    def quick_ends(self) -> int:
        """Return how often in a row the part has ended shortly after it was started."""
        return recent_starts(self.folder)[1]

    def log_tail(self, lines: int = 15) -> str:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 16384))
                return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""
