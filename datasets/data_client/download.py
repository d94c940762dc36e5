"""`download`: a dataset becomes a folder. Existing files are compared by size and checksum; incomplete ones are
resumed. Called by cli.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import http.client
import os
import re
import threading
import time
from pathlib import Path

from .errors import DAMAGED, LOCAL, REFUSED, UNREACHABLE, Failure, Trouble
from .pool import each
from .progress import Progress
from .scan import DRAFTS
from .service import Platform, Remote

BLOCK = 1 << 20
TRIES = 3
DRAFT = re.compile(r"[0-9a-f]{64}")
DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")


def download(platform: Platform, options, say) -> dict:
    """Run the command; return what --json prints. Raises Failure."""
    owner, _, name = options.name.rpartition("/")
    if owner:
        platform.user, options.name = owner, name
    dataset = platform.dataset(options.name)
    if dataset is None:
        raise Failure(REFUSED, f"dataset {options.name} not found")
    if dataset["state"] != "ready":
        raise Failure(REFUSED, "dataset {} is {}, not ready".format(options.name, dataset["state"]))
    remotes = sorted(platform.files(options.name).values(), key=lambda remote: remote.path)
    for remote in remotes:
        _checked(remote.path)
    folder, total = Path(options.dir), sum(remote.size for remote in remotes)
    drafts = folder / _free_name(remotes)
    try:
        drafts.mkdir(parents=True, exist_ok=True)
        with Progress("downloading", total, len(remotes), options.quiet) as progress:
            platform.web.note = progress.say
            job = Download(platform, options.name, folder, drafts, progress)
            each(job.download_file, remotes, options.jobs, platform.web)
            received = progress.moved
        _clear(drafts)
    except OSError as problem:
        raise Failure(LOCAL, f"{problem.filename or folder}: {problem.strerror}")
    return {
        "dataset": options.name,
        "user": platform.user,
        "files": len(remotes),
        "bytes": total,
        "received": received,
        "dir": str(folder),
    }


def _checked(path: str) -> None:
    """Raise Failure for a path that would lead out of the folder."""
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in path or ("\\" in path and os.name == "nt"):
        raise Failure(REFUSED, f"refusing to download a file with an unsafe path: {path!r}")


def _free_name(remotes: list) -> str:
    """Return the name of the folder for incomplete files: always the same, and not one in the dataset."""
    taken = {remote.path.partition("/")[0].casefold() for remote in remotes}
    name = DRAFTS
    while name in taken:
        name += "-"
    return name


def _clear(drafts: Path) -> None:
    """Remove the incomplete files, and their folder unless it has other files too."""
    others = 0
    for path in list(drafts.iterdir()):
        if DRAFT.fullmatch(path.name):
            path.unlink()
        else:
            others += 1
    if not others:
        drafts.rmdir()


class Download:
    """The work on one file, done by several threads."""

    of_one_object = True  # what is left of a file without a checksum is fetched of the same content only

    def __init__(self, platform: Platform, name: str, folder: Path, drafts: Path, progress: Progress):
        self.platform, self.name, self.folder, self.drafts, self.progress = platform, name, folder, drafts, progress
        self.counted = threading.local()  # bytes of this thread's file that the progress has counted

    def download_file(self, remote: Remote) -> None:
        """Download one file unless it is there already. Raises Failure."""
        target = self.folder.joinpath(*remote.path.split("/"))
        if self._same(target, remote):
            self.progress.add(remote.size, moved=False)
        else:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                draft = self.drafts / hashlib.sha256(remote.path.encode("utf-8")).hexdigest()
                self.fetch(remote, target, draft)
            except OSError as problem:
                raise Failure(LOCAL, f"{target}: {problem.strerror}")
        self.progress.file_done()

    def _same(self, target: Path, remote: Remote) -> bool:
        try:
            if target.is_symlink() or target.stat().st_size != remote.size:
                return False
            expected = self._expected(remote)
            return bool(expected) and self._sum(target) == expected
        except OSError:
            return False

    def _expected(self, remote: Remote) -> str:
        if not remote.sha256:
            remote.sha256 = self.platform.sha256(self.name, remote.path)
        return remote.sha256

    def fetch(self, remote: Remote, target: Path, draft: Path) -> None:
        """Download to the draft, verify its checksum, and rename it to the target. Raises Failure, OSError.

        A file that is in a bucket has none: its draft is that of this download alone, and of one object.
        """
        if not self._expected(remote) and draft.exists():
            draft.unlink()
        for _ in range(TRIES):
            self._patiently(remote, draft)
            if not self._expected(remote) or self._sum(draft) == self._expected(remote):
                os.replace(str(draft), str(target))
                return
            self.progress.say(f"{remote.path} checksum mismatch, downloading it again")
            self.progress.add(-remote.size)
            draft.unlink()
            remote.sha256 = ""
        raise Failure(DAMAGED, f"{remote.path}: checksum mismatch after {TRIES} tries")

    def _patiently(self, remote: Remote, draft: Path) -> None:
        """Download the rest of the draft, with retries as long as bytes arrive."""
        web, last, delay, self.counted.size = self.platform.web, time.monotonic(), 0.25, 0
        self.counted.tag = ""
        while True:
            have = _length(draft)
            self._count(max(have, 0), moved=False)
            if have == remote.size:
                return
            try:
                self._rest(remote, draft, have)
            except Trouble as trouble:
                if _length(draft) > have:
                    last, delay = time.monotonic(), 0.25
                waited = time.monotonic() - last
                if waited > web.patience:
                    raise Failure(UNREACHABLE, f"{trouble.line} (gave up after {waited:.0f} s)")
                web.say(trouble)
                web.stopping.wait(max(trouble.wait, delay))
                delay = min(delay * 2, 10.0)

    def _count(self, size: int, moved: bool = True) -> None:
        """Count this thread's file as having `size` bytes."""
        self.progress.add(size - self.counted.size, moved=moved)
        self.counted.size = size

    def _rest(self, remote: Remote, draft: Path, have: int) -> None:
        """Append to the draft what one GET from byte `have` on returns. Raises Trouble when it is interrupted."""
        web = self.platform.web
        if web.stopping.is_set():
            raise Failure(UNREACHABLE, "stopped")
        headers = {"Range": f"bytes={have}-"} if have > 0 else {}
        if headers and self.counted.tag:
            headers["If-Match"] = self.counted.tag
        response = web.open(self.platform.file_path(self.name, remote.path), headers)
        try:
            if response.status in (412, 416) or have > remote.size:
                draft.unlink()
                raise Trouble(f"{remote.path} changed on the platform")
            have = have if response.status == 206 else 0
            self.counted.tag = response.headers.get("ETag", "") if self.of_one_object and not remote.sha256 else ""
            with open(str(draft), "ab" if have > 0 else "wb", buffering=0) as file:
                while True:
                    block = web.read_block(response)
                    if not block:
                        break
                    file.write(block)
                    have += len(block)
                    self._count(have)
                    if web.stopping.is_set():
                        raise Failure(UNREACHABLE, "stopped")
            remote.sha256 = remote.sha256 or _digest_of(response)
        except BaseException:
            web.close()
            raise

    @staticmethod
    def _sum(path: Path) -> str:
        digest = hashlib.sha256()
        with open(str(path), "rb", buffering=0) as file:
            while True:
                block = file.read(BLOCK)
                if not block:
                    return digest.hexdigest()
                digest.update(block)


def _length(draft: Path) -> int:
    """Return the bytes of the draft, -1 when there is none, so that an empty file is downloaded too."""
    try:
        return draft.stat().st_size
    except FileNotFoundError:
        return -1


def _digest_of(response: http.client.HTTPResponse) -> str:
    """Return the checksum that was sent with the file, "" for none."""
    match = DIGEST.search(response.headers.get("Repr-Digest", ""))
    return binascii.hexlify(base64.b64decode(match.group(1))).decode() if match else ""
