"""Refuses to start this release on what a newer one has written: its migrations cannot be reversed.

{root}/release.json is written after each set-up and names the migrations of the database. It is read before anything
starts; the database itself is asked before it is migrated, for a root that came without the file.
"""

from __future__ import annotations

import contextlib
import json

from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from .part import write_private

FILE = "release.json"
SHOWN = 3


class TooNew(Exception):
    """What is stored was written by a newer release; the message says what to do."""


def known() -> set[str]:
    """Return the migrations of this release, as `app.name`."""
    loader = MigrationLoader(None, ignore_no_migrations=True)
    return {f"{app}.{name}" for app, name in loader.disk_migrations}


def applied() -> set[str]:
    """Return the migrations that the database has."""
    return {f"{app}.{name}" for app, name in MigrationRecorder(connection).applied_migrations()}


def check_root() -> None:
    """Raise TooNew when a newer release has used this root. Reads a file only."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        _refuse(set(json.loads((settings.MLP_ROOT / FILE).read_text())["migrations"]))


def check_database() -> None:
    """Raise TooNew when a newer release has migrated the database."""
    _refuse(applied())


def record() -> None:
    """Write which migrations the database has now."""
    write_private(settings.MLP_ROOT / FILE, json.dumps({"migrations": sorted(applied())}, indent=1) + "\n")


def _refuse(migrations: set[str]) -> None:
    newer = sorted(migrations - known())
    if not newer:
        return
    names = ", ".join(newer[:SHOWN]) + (f" and {len(newer) - SHOWN} more" if newer[SHOWN:] else "")
    raise TooNew(
        f"{settings.MLP_ROOT} was used by a newer release, whose migrations this one does not know ({names}). Nothing "
        "has been changed. Start the newer release, or restore a backup of this one (docs/upgrade.md)."
    )
