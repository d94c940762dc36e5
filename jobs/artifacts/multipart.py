"""Large artifacts in parts, which may arrive in any order and at the same time, and survive any interruption.

The parts of an upload lie in the spool, visible to nobody: `{root}/datasets/.spool/artifacts/{user}/{upload}/{number}`,
with what the upload is for beside them. Each counts to the space of its run as it arrives. They are joined inside the
kernel once all have arrived. A receipt stays for a while, so that a client that lost the answer may ask again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from datasets.webdav import tree
from datasets.webdav.admission import clear
from datasets.webdav.spool import ARTIFACTS
from jobs.models import Job
from kernel import clock, disk, storage
from kernel.errors import Refused
from kernel.locking import Missing

from . import files, space
from .arriving import ABOUT, size_of, uploads_of

MAX_PARTS = 10_000
MAX_UPLOADS = 1000  # of a user at a time
KEEP_S = 86_400.0  # how long an upload is kept after its last part
RECEIPT_S = 1800.0  # how long it is known that an upload was completed: MLflow's clients repeat for four minutes
LOCK, WHOLE, RECEIPT = "lock", "whole", "receipt"
KEY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Upload:
    """An artifact that arrives in parts: of which run, its path in the run's output, and how many parts.

    `token` is the mark of the token by which it was begun, `charged` whether its parts count to the run's space: an
    upload that an earlier release has begun has neither.
    """

    key: str
    user: str
    job: int
    path: str
    parts: int
    token: str = ""
    charged: bool = False

    @property
    def folder(self) -> Path:
        return uploads_of(self.user) / self.key

    def part(self, number: int) -> Path:
        """Return the file of a part. Raises Refused for a number that it does not have."""
        if not 1 <= number <= self.parts:
            raise Refused("must be from 1 to %(last)s", field="part_number", last=self.parts)
        return self.folder / str(number)

    @property
    def receipt(self) -> Path:
        """The file that stays of a completed upload: which parts it was made of."""
        return self.folder / RECEIPT


def begin(job: Job, path: str, parts: int, token: str) -> Upload:
    """Start an upload by the token with that mark. Raises Refused."""
    files.checked(path)
    if not 1 <= parts <= MAX_PARTS:
        raise Refused("must be from 1 to %(last)s", field="num_parts", last=MAX_PARTS)
    top = uploads_of(job.user.username)
    if _unfinished(top) >= MAX_UPLOADS:
        raise Refused("you have %(limit)s unfinished uploads, the most that are allowed", limit=MAX_UPLOADS)
    upload = Upload(secrets.token_hex(16), job.user.username, job.pk, path, parts, token, charged=True)
    upload.folder.mkdir(parents=True)
    storage.write_atomic(upload.folder / ABOUT, json.dumps(asdict(upload)).encode())
    return upload


def find(user: str, key: str, completed: bool = False) -> Upload:
    """Return an upload of a user, a completed one only where it is asked for. Raises Missing."""
    if KEY.fullmatch(key):
        with contextlib.suppress(OSError, ValueError, TypeError):
            upload = Upload(**json.loads((uploads_of(user) / key / ABOUT).read_bytes()))
            if completed or not upload.receipt.exists():
                return upload
    raise Missing("upload")


def add(upload: Upload, job: Job, number: int, body: Path) -> str:
    """Move a part from the spool to its upload; return its ETag, by which the client names it at the end.

    Raises NoRoom, Missing.
    """
    place = upload.part(number)
    with _as_missing(), space.writing(job) as locked:
        if upload.charged:
            locked.charge(body.stat().st_size - (place.stat().st_size if place.exists() else 0))
        os.rename(body, place)
        os.utime(upload.folder)
        return etag(place)


def etag(part: Path) -> str:
    """Return what tells this part from another one of its number."""
    info = part.stat(follow_symlinks=False)
    return f"{info.st_size:x}-{info.st_ino:x}-{info.st_mtime_ns:x}"


def complete(upload: Upload, job: Job, etags: Mapping[int, str]) -> None:
    """Join the parts and put the artifact into its place; do nothing where that was done with the same parts before.

    Raises Refused, NoRoom, DiskFull, Missing.
    """
    if sorted(etags) != list(range(1, upload.parts + 1)):
        raise Refused("must name each part from 1 to %(last)s once", field="parts", last=upload.parts)
    named = hashlib.sha256(json.dumps(sorted(etags.items())).encode()).digest()
    with _as_missing(), _locked(upload):
        if upload.receipt.exists():
            if upload.receipt.read_bytes() != named:
                raise Refused("was completed with other parts", field="upload_id")
            return
        parts = [upload.part(number) for number in range(1, upload.parts + 1)]
        for number, part in enumerate(parts, 1):
            if not part.is_file() or etag(part) != etags[number]:
                raise Refused("part %(number)s has not arrived, or was sent again since", field="parts", number=number)
        total = size_of(upload.folder)
        disk.require(total)
        if not upload.charged:
            space.require(job, total - files.size(job, upload.path))
        whole = upload.folder / WHOLE
        _join(parts, whole)
        with space.writing(job) as locked:  # a crash before the commit leaves too much counted, never too little
            if upload.charged:
                locked.charge(-total)
            files.put(job, upload.path, whole)
            storage.write_atomic(upload.receipt, named)
            for part in parts:
                part.unlink(missing_ok=True)


def abort(upload: Upload, job: Job) -> None:
    """Remove an upload."""
    with space.writing(job) as locked:
        if upload.charged:
            locked.charge(-size_of(upload.folder))
        clear(upload.folder)


def sweep(older_than_s: float = KEEP_S, receipts_s: float = RECEIPT_S) -> int:
    """Remove the uploads to which nothing has been added for so long, and old receipts; return how many."""
    now, removed = time.time() - clock.ahead_s(), 0
    for folder in storage.spool_dir().joinpath(ARTIFACTS).glob("*/*"):
        with contextlib.suppress(FileNotFoundError):
            age = now - folder.lstat().st_mtime
            if age > (min(older_than_s, receipts_s) if (folder / RECEIPT).exists() else older_than_s):
                _forget(folder)
                removed += 1
    return removed


def _forget(folder: Path) -> None:
    """Remove an upload, whose run may be gone."""
    with contextlib.suppress(Missing):
        upload = find(folder.parent.name, folder.name)
        job = Job.objects.select_related("user").filter(pk=upload.job).first()
        if job is not None:
            abort(upload, job)
    clear(folder)


def _unfinished(top: Path) -> int:
    """Return the number of a user's uploads that are not completed; it looks closer where there are many."""
    keys = os.listdir(top) if top.is_dir() else []
    return len(keys) if len(keys) < MAX_UPLOADS else sum(not (top / key / RECEIPT).exists() for key in keys)


def _join(parts: list[Path], whole: Path) -> None:
    whole.unlink(missing_ok=True)  # of a try that was killed
    writer = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        done = 0
        for part in parts:
            reader = os.open(part, tree.FILE)
            try:
                size = os.fstat(reader).st_size
                tree.copy_bytes(reader, writer, size, done)
                done += size
            finally:
                os.close(reader)
    finally:
        os.close(writer)


@contextlib.contextmanager
def _as_missing() -> Iterator[None]:
    """Raise Missing where the upload's folder is removed meanwhile."""
    try:
        yield
    except FileNotFoundError:
        raise Missing("upload") from None


@contextlib.contextmanager
def _locked(upload: Upload) -> Iterator[None]:
    """Let an upload be completed once, in whichever process; a killed process leaves no lock behind."""
    lock = os.open(upload.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
