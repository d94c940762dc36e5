"""Reads the saved code of a job: its manifest, one file, all files as an archive."""

from __future__ import annotations

import io
import tarfile
import tempfile
import zipfile
from typing import BinaryIO

from jobs.models import Job
from snapshots import manifest, store

SHOWN_BYTES = 256 << 10
IN_MEMORY = 4 << 20


def manifest_of(job: Job) -> manifest.Manifest | None:
    """Return the manifest; None for a job of a release that did not save code."""
    return manifest.from_data(job.snapshot.manifest) if job.snapshot_id else None


def open_file(job: Job, path: str) -> BinaryIO | None:
    """Open a saved file; None if the path is not in the snapshot."""
    kept = manifest_of(job)
    file = kept.file(path) if kept else None
    return store.open_blob(job.user.username, file.blob) if file else None


def text_of(job: Job, path: str, most: int = SHOWN_BYTES) -> str | None:
    """Return a saved file as text; None if it is missing, is not text, or has more than `most` bytes."""
    file = open_file(job, path)
    if file is None:
        return None
    with file:
        data = file.read(most + 1)
    if len(data) > most or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def archive(job: Job, form: str) -> BinaryIO:
    """Return all saved files as a `tar.gz` or a `zip`, positioned at its beginning. Modification times are the job's
    creation.
    """
    result = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115, the response closes it
    kept = manifest_of(job)
    files = kept.files if kept else []
    user, moment = job.user.username, job.created
    if form == "zip":
        with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as out:
            for file in files:
                entry = zipfile.ZipInfo(f"{job.name}/{file.path}", max((1980, 1, 1, 0, 0, 0), moment.timetuple()[:6]))
                entry.external_attr = (0o755 if file.mode & 0o100 else 0o644) << 16
                out.writestr(entry, _bytes(user, file), zipfile.ZIP_DEFLATED)
    else:
        with tarfile.open(fileobj=result, mode="w:gz", compresslevel=6) as out:
            for file in files:
                data, entry = _bytes(user, file), tarfile.TarInfo(f"{job.name}/{file.path}")
                entry.size, entry.mode = len(data), 0o755 if file.mode & 0o100 else 0o644
                entry.mtime = int(moment.timestamp())
                out.addfile(entry, io.BytesIO(data))
    result.seek(0)
    return result


def _bytes(user: str, file: manifest.File) -> bytes:
    opened = store.open_blob(user, file.blob)
    if opened is None:
        return b""
    with opened:
        return opened.read()
