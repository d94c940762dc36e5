"""What of a storage root is in a backup, and the names that backups use in it.

Everything is, except what the platform makes again at each start and what has another form in the backup, so that no
folder of a later release is forgotten.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from django.conf import settings

from supervision import root as roots

from .places import BackupError

# The servers' own files: dumps of the database and of the streams are in the backup, Valkey's content is made again.
SERVERS = frozenset({"database", "nats", "valkey"})
LEFT_OUT = SERVERS | {"run"}
WORK = ".restore"  # below the root: what a backup has beside the root's files, and a restore's drafts
DUMP, STREAMS, DRAFTS, REPORT = f"{WORK}/dump", f"{WORK}/streams", f"{WORK}/drafts", f"{WORK}/report.json"
MARK = roots.HALF_RESTORED
SPOOL = "datasets/.spool"
MADE_AGAIN = ("datasets/.mounts", "datasets/.cache")  # for runs: links, and files of buckets
KEPT_OF_SPOOL = f"{SPOOL}/parts"  # uploads in parts, which their clients continue
# What reading the settings makes in a new root: it is empty all the same.
SECRETS = frozenset(
    {"secret-key", "database-password", "valkey-password", "nats-password", "metrics-token", "nats-platform"}
    | {"nats-issuer", "admin-password"}
)
MAY_BE_THERE = SECRETS | {"run", WORK, "lost+found"}


def leaves_out(root: Path, place: str) -> Callable[[str], bool]:
    """Return which paths of the root are not in a backup to this destination."""
    root, own = root.resolve(), ""
    target = Path(place.removeprefix("file://")).absolute().resolve()
    if "://" not in place and target.is_relative_to(root):
        own = str(target.relative_to(root))

    def answer(path: str) -> bool:
        top = path.partition("/")[0]
        if top in LEFT_OUT or top == WORK or path == MARK or top.startswith(".database."):
            return True
        if any(path == folder or path.startswith(f"{folder}/") for folder in MADE_AGAIN):
            return True
        if path.startswith(f"{SPOOL}/") and not path.startswith(KEPT_OF_SPOOL):
            return True
        return bool(own) and (path == own or path.startswith(own + "/"))

    return answer


def content(root: Path) -> str:
    """Return the name of something in the root that a restore would destroy; "" for an empty root."""
    for entry in root.iterdir() if root.exists() else ():
        names = {entry.name, entry.name.lstrip(".").split(".")[0]}  # a secret, or the draft of one
        if not names & MAY_BE_THERE and (not entry.is_dir() or any(entry.iterdir())):
            return entry.name
    return ""


@contextlib.contextmanager
def only_backup(root: Path) -> Iterator[Path]:
    """Yield the folder for the drafts of the only backup of this root. Raises BackupError while there is another."""
    folder = root / "run" / "backup"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder.with_name("backup.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"another backup of {root} is running") from None
        yield folder
    finally:
        os.close(descriptor)


def unfinished(root: Path) -> dict | None:
    """Return what the mark of an incomplete restore says; None where there is none. Raises BackupError."""
    try:
        return json.loads((root / MARK).read_text())
    except FileNotFoundError:
        return None
    except ValueError as problem:
        raise BackupError(f"{root / MARK} is damaged: remove the folder, and restore to an empty one") from problem


def version() -> str:
    """Return the platform's version."""
    try:
        return importlib.metadata.version("mlp-platform")
    except importlib.metadata.PackageNotFoundError:
        return "a checkout"


def fingerprint() -> str:
    """Return a checksum by which a restore recognises MLP_SECRET_KEY, and from which it cannot be found."""
    return hmac.new(settings.SECRET_KEY.encode(), b"operations.backup", hashlib.sha256).hexdigest()[:16]
