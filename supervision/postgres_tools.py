"""PostgreSQL's client programs, pg_dump and pg_restore, which come with its server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from . import binaries, launch

WORDS = 1000  # characters of what a failed program has said


class ToolFailed(RuntimeError):
    """A program is missing or has failed; the message says why."""


def call(tool: str, *arguments: str) -> None:
    """Run a program to its end, with the password of the platform's database; it ends with this thread at the latest.

    Raises ToolFailed.
    """
    password = settings.DATABASES["default"]["PASSWORD"]
    done = subprocess.run(
        [program(tool), *arguments],
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "PGPASSWORD": password},
        capture_output=True,
        text=True,
        preexec_fn=lambda: launch.die_with_parent(9),
    )
    if done.returncode:
        raise ToolFailed(f"{tool} failed: {done.stderr.strip()[-WORDS:]}")


def program(tool: str) -> str:
    """Return the path of a program, of the version that made the embedded database's folder. Raises ToolFailed."""
    made_by = settings.MLP_ROOT / "database" / "PG_VERSION"
    major = int(made_by.read_text()) if settings.EMBEDDED["database"] and made_by.exists() else 0
    try:
        server = Path(binaries.find(binaries.POSTGRES, major))
    except ImproperlyConfigured as problem:
        raise ToolFailed(str(problem)) from problem
    path = server.with_name(tool)
    if not path.exists():
        raise ToolFailed(f"there is no {tool} beside {server}")
    return str(path)
