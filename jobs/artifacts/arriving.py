"""Where the parts of unfinished uploads lie, and how many bytes have arrived of them (multipart.py)."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from datasets.webdav.spool import ARTIFACTS
from jobs.models import Job
from kernel import storage

ABOUT = "about.json"  # what an upload is for; the files of its parts have numbers as names


def uploads_of(user: str) -> Path:
    """Return the folder with a folder for each of the user's uploads."""
    return storage.spool_dir() / ARTIFACTS / user


def size_of(upload: Path) -> int:
    """Return the bytes that have arrived of an upload; 0 where it is gone."""
    total = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(upload) as files:
        for file in files:
            if file.name.isdigit():
                with contextlib.suppress(FileNotFoundError):
                    total += file.stat(follow_symlinks=False).st_size
    return total


def charged_to(job: Job) -> int:
    """Return the bytes of all unfinished uploads that count to the run's space."""
    total = 0
    for about in uploads_of(job.user.username).glob(f"*/{ABOUT}"):
        with contextlib.suppress(OSError, ValueError):
            upload = json.loads(about.read_bytes())
            if upload.get("job") == job.pk and upload.get("charged"):
                total += size_of(about.parent)
    return total
