"""`manage.py part NAME`: one part of the platform as this very process, without a supervisor of ours.

For platforms whose parts run in containers, or under another supervisor, each in as many replicas as it needs: they
find each other by the addresses of part_settings.py, and share the database, NATS, Valkey and the storage root. `setup`
is what comes before all of them: migrations, static files, the administrator; it may run twice, also at once.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor

from . import outside, release, setup
from .part import Part
from .parts import platform_parts
from .root import make_root

SETUP = "setup"
PATIENCE_S = 600  # for the set-up of this release to be done by somebody
AGAIN_S = 1.0


def names() -> list[str]:
    """Return what can be started by itself: the set-up, and the parts that are not embedded servers."""
    return [SETUP, *(part.name for part in platform_parts() if part.stage != "servers")]


def become(name: str) -> None:
    """Become the part; returns only after the set-up. Raises SystemExit with what is wrong."""
    os.umask(0o077)  # only the owner may read what the platform stores
    embedded = [server for server, embedded in settings.EMBEDDED.items() if embedded]
    if embedded and settings.INSTANCE_DIR is not None:
        needed = ", ".join(
            {"database": "DATABASE_URL", "nats": "NATS_URL", "valkey": "REDIS_URL"}[server] for server in embedded
        )
        sys.exit(f"a part by itself has no embedded servers beside it: set {needed}")
    make_root()
    try:
        if name == SETUP:
            _wait_for(lambda: outside.require(), outside.Unreachable)
            setup.steps()
            return
        (part,) = [part for part in platform_parts() if part.name == name]
        if part.configure:  # nginx needs nothing of the database
            part.configure()
        else:
            _wait_for(_is_set_up, NotSetUp, Error)
    except (ImproperlyConfigured, outside.Unreachable, release.TooNew, NotSetUp, Error) as problem:
        sys.exit(f"{name}: {problem}")
    _execute(part)


class NotSetUp(Exception):
    """The database lacks migrations of this release."""


def _is_set_up() -> None:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    connection.close()
    if plan:
        more = f" and {len(plan) - 1} more" if plan[1:] else ""
        raise NotSetUp(f"the database lacks the migration {plan[0][0]}{more}: run `manage.py part {SETUP}`")


def _wait_for(check, *problems: type[Exception]) -> None:
    """Call until it raises none of the problems; raise the last one after PATIENCE_S. SIGTERM ends the wait."""
    old = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    end, said = time.monotonic() + PATIENCE_S, ""
    try:
        while True:
            try:
                return check()
            except problems as problem:
                if time.monotonic() > end:
                    raise
                if str(problem) != said:
                    said = str(problem)
                    print(f"waiting: {said}", file=sys.stderr, flush=True)
            time.sleep(AGAIN_S)
    finally:
        signal.signal(signal.SIGTERM, old)


def _execute(part: Part) -> None:
    folder = settings.INSTANCE_DIR or part.folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chdir(folder)
    os.execve(part.command[0], part.command, {**os.environ, **part.environment})
