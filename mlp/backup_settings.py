"""The settings of backups, which only `manage.py backup` and `manage.py restore` use."""

from __future__ import annotations

from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from kernel.environment import Secret, Section

BACKUP = Section("Backup")


def read() -> Secret:
    """Return the passphrase of the backups, an empty one where they are not encrypted."""
    passphrase = BACKUP.secret(
        "MLP_BACKUP_PASSPHRASE",
        help="with it `manage.py backup` encrypts what it writes, and `manage.py restore` reads it "
        "([backup.md](backup.md)). Only these two need it",
    )
    path = BACKUP.text("MLP_BACKUP_PASSPHRASE_FILE", help="instead of it, a file whose first line is the passphrase")
    if not path:
        return passphrase
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as problem:
        raise ImproperlyConfigured(f"MLP_BACKUP_PASSPHRASE_FILE: {path}: {problem.strerror}") from problem
    if not lines or not lines[0].strip():
        raise ImproperlyConfigured(f"MLP_BACKUP_PASSPHRASE_FILE: {path} is empty")
    return Secret(lines[0].strip())
