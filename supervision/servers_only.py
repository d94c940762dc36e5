"""The embedded servers without the rest of the platform, for a backup of a stopped one and for a restore.

They end with this process, however it ends: like supervisord's parts with supervisord (launch.become).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from kernel import sockets

from . import health, launch, ports, servers
from .forking import Child
from .part import Part, run_dir, write_private

START_LIMIT_S = 120


class NotStarted(RuntimeError):
    """A server could not be started; the message has the end of its log."""


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Run the servers that this root embeds. The caller holds the lock of `up`. Raises NotStarted.

    Only a process with one thread may call it, since the servers begin as its forks.
    """
    os.umask(0o077)
    parts = servers.embedded()
    children: list[tuple[Part, Child]] = []
    try:
        try:
            for part in reversed(parts):
                if not launch.end_leftovers(part.folder, launch.LEFTOVER_GRACE_S.get(part.name, 2.0)):
                    raise NotStarted(f"a {part.name} of an earlier start does not stop")
            own = run_dir() / "servers-only.pid"
            write_private(own, f"{os.getpid()}\n")
            sockets.make_folder(settings.SOCKETS)
            for part in parts:
                part.prepare(parent=own)
                part.forget_starts()
            ports.check(parts)
            children += [(part, Child(lambda part=part: launch.become(part.folder), _log(part))) for part in parts]
            _await(children)
        except (ports.Taken, ImproperlyConfigured, OSError, PermissionError) as problem:
            raise NotStarted(str(problem)) from problem
        yield
    finally:
        for part, child in reversed(children):
            _end(part, child)


def _log(part: Part) -> Path:
    """Return the file for its output: the platform's own logs may be those of a backup, and stay as they are."""
    return part.folder / "servers-only.log"


def _await(children: list[tuple[Part, Child]]) -> None:
    """Return once each server answers."""
    end = time.monotonic() + START_LIMIT_S
    waiting = list(children)
    while waiting:
        problems = health.ask({part.name: part.ready for part, _ in waiting})
        waiting = [(part, child) for part, child in waiting if problems[part.name] != "ok"]
        for part, child in waiting:
            if child.poll() is not None or time.monotonic() > end:
                said = _log(part).read_text(errors="replace")[-1000:]
                raise NotStarted(f"{part.name} does not start: {problems[part.name]}\n{said}")
        time.sleep(0.05)


def _end(part: Part, child: Child) -> None:
    """Stop a server in order, and kill it when it does not end."""
    for number in (getattr(signal, f"SIG{part.stop_signal}"), signal.SIGKILL):
        if launch.send(part.folder, number) == 0 and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)
        if child.wait(part.stop_wait_s + 2) is not None:
            return


def manage_elsewhere(root: Path, environment: Mapping[str, str], *words: str) -> None:
    """Run a `manage.py` command with the settings of another root, to its end; it ends with this process.

    Raises RuntimeError with what the command has said.
    """
    done = subprocess.run(
        [sys.executable, str(settings.BASE_DIR / "manage.py"), *words],
        env={**environment, "MLP_ROOT": str(root)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: launch.die_with_parent(signal.SIGKILL),
    )
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise RuntimeError(said.removeprefix("CommandError: ")[-3000:])
