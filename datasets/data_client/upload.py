"""`upload`: a folder becomes a dataset. The same command resumes an interrupted upload: stored files are compared by
size and checksum, and only the rest is sent. Called by cli.py.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading

from .errors import DAMAGED, LOCAL, REFUSED, UNREACHABLE, USAGE, Failure
from .pool import each
from .progress import Progress
from .scan import Local, scan
from .service import Platform, Remote

BLOCK = 1 << 20
WHOLE = 4 << 20  # bytes; smaller files are sent with their checksum, larger ones are compared afterwards
HEARTBEAT_S = 3.0
TRIES = 3


def only_own(name: str, verb: str) -> None:
    """Raise Failure for `owner/name`: others' datasets are for reading."""
    if "/" in name:
        raise Failure(USAGE, f"only your own datasets can be {verb}; {name} is another user's")


def upload(platform: Platform, options, say) -> dict:
    """Run the command; return what --json prints. Raises Failure."""
    only_own(options.name, "uploaded")
    skipped: list = []
    files = scan(options.dir, options.follow, lambda line: (skipped.append(line), say(line)), options.all)
    total = sum(local.size for local in files)
    dataset = _prepare(platform, options, total)
    result = {"dataset": options.name, "user": platform.user, "files": len(files), "bytes": total, "skipped": skipped}
    there = platform.files(options.name)
    complete = dataset["state"] == "ready"
    if not complete:
        _clear(platform, options.name, files, there, say)
    elif set(there) != {local.path for local in files}:
        raise _different(options.name)
    with Progress("uploading", total, len(files), options.quiet) as progress:
        platform.web.note = progress.say
        job = Upload(platform, options.name, there, progress, complete)
        job.part = options.part << 20
        with _Heartbeat(platform, options.name, progress, enabled=not complete):
            each(job.upload_file, files, options.jobs, platform.web)
        sent = progress.moved
    if not complete:
        platform.finish(options.name)
    return dict(result, sent=sent, state="ready")


def _prepare(platform: Platform, options, total: int) -> dict:
    """Return the dataset to upload to: that of an interrupted upload, or a new one. Raises Failure."""
    name = options.name
    there = platform.dataset(name)
    if there is not None and there["state"] == "deleting":
        platform.wait_gone(name)
        there = None
    if there is not None:
        usable = there["state"] in ("creating", "ready") and there["size"] == total
        if usable and not (options.replace and there["state"] == "ready"):
            if options.title and options.title != there.get("title"):
                platform.retitle(name, options.title)
            return there
        if not options.replace:
            raise _unusable(there, total)
        remove(platform, there)
    platform.create(name, total, options.title or (there or {}).get("title", ""))
    return {"name": name, "size": total, "state": "creating"}


def remove(platform: Platform, there: dict) -> None:
    """Delete the dataset in any state, and wait until its name is free. Raises Failure."""
    name = there["name"]
    if there["state"] == "creating":
        platform.heartbeat(name, "error", 0, expect=(403,))
    platform.delete(name)
    platform.wait_gone(name)


def _unusable(there: dict, total: int) -> Failure:
    name = there["name"]
    if there["state"] == "error":
        line = "dataset {} is in state error ({})".format(name, there.get("reason") or "no reason given")
    elif there["state"] == "creating":
        line = f"dataset {name} is being uploaded with {there['size']} bytes, but the folder has {total}"
    else:
        line = f"dataset {name} already exists with other files"
    return Failure(REFUSED, line + "; use --replace to replace it")


def _different(name: str) -> Failure:
    return Failure(REFUSED, f"dataset {name} already exists with other files; use --replace to replace it")


def _clear(platform: Platform, name: str, files: list, there: dict, say) -> None:
    """Delete the files of an earlier upload that the folder no longer has: they count towards the size."""
    wanted = {local.path for local in files}
    for path in sorted(set(there) - wanted):
        say(f"deleted {path} from the dataset: not in the folder")
        platform.remove(name, path)
        del there[path]


class Upload:
    """The work on one file, done by several threads."""

    part = 64 << 20  # bytes; larger files are sent in parts of this size

    def __init__(self, platform: Platform, name: str, there: dict, progress: Progress, complete: bool):
        self.platform, self.name, self.there = platform, name, there
        self.progress, self.complete = progress, complete

    def upload_file(self, local: Local) -> None:
        """Upload one file unless it is stored already. Raises Failure."""
        remote = self.there.get(local.path)
        if remote is None or not self._same(local, remote):
            if self.complete:
                raise _different(self.name)
            self._send(local)
        else:
            self.progress.add(local.size, moved=False)
        self.progress.file_done()

    def _same(self, local: Local, remote: Remote) -> bool:
        if remote.size != local.size:
            return False
        if local.size == 0:
            return True
        digest = hashlib.sha256()
        for _ in _blocks(local, self.check_stopping, digest):
            pass
        return digest.hexdigest() == (remote.sha256 or self.platform.sha256(self.name, local.path))

    def _send(self, local: Local) -> None:
        for _ in range(TRIES):
            try:
                digest = self._put(local)
                if local.size <= WHOLE or self.platform.sha256(self.name, local.path) == digest:
                    return
            except Failure as failure:
                if failure.code != DAMAGED:
                    raise
            self.progress.say(f"{local.path} checksum mismatch, sending it again")
            self.progress.add(-local.size)
        raise Failure(DAMAGED, f"{local.path}: checksum mismatch after {TRIES} tries")

    def _put(self, local: Local) -> str:
        """Send the file; return the checksum of the bytes that were sent."""
        path = self.platform.file_path(self.name, local.path)
        if local.size <= WHOLE:
            digest = hashlib.sha256()
            body = b"".join(_blocks(local, self.check_stopping, digest))
            headers = {"Repr-Digest": f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"}
            answer = self.deliver(path, len(body), lambda: [body] if body else [], headers)
            if answer.status == 405:  # an empty folder of an earlier upload has that name
                self.platform.remove(self.name, local.path)
                self.deliver(path, len(body), lambda: [body] if body else [], headers, expect=())
            self.progress.add(len(body))
            return digest.hexdigest()
        return PartsOf(self, local, path).send()

    def check_stopping(self, _count: int) -> None:
        """Raise Failure as soon as another thread has failed."""
        if self.platform.web.stopping.is_set():
            raise Failure(UNREACHABLE, "stopped")

    def deliver(self, path: str, size: int, blocks, headers: dict, expect=(405,)):
        """Send a body of `size` bytes with PUT, with retries; return the response. Raises Failure."""
        return self.platform.web.send("PUT", path, size, blocks, headers, expect)


class PartsOf:
    """One large file, sent in parts: what has arrived in an earlier try is read for the checksum only."""

    def __init__(self, job: Upload, local: Local, path: str):
        self.job, self.local, self.path = job, local, path
        self.counted = 0  # bytes of this file that the progress has counted

    def send(self) -> str:
        """Send what is missing; return the checksum of the whole file. Raises Failure."""
        while True:
            have = self._arrived()
            digest = hashlib.sha256()
            for _ in _blocks(self.local, self.job.check_stopping, digest, 0, have):
                pass
            self._count(have, moved=False)
            while have < self.local.size:
                length = min(self.job.part, self.local.size - have)
                sent, answer = self._part(have, length, digest)
                if answer.status == 409:
                    break  # an earlier try arrived but its answer was lost, or another client sends the same file
                have, digest = have + length, sent
            else:
                return digest.hexdigest()
            if have + length == self.local.size and self._there():
                return sent.hexdigest()

    def _part(self, first: int, length: int, before):
        """Send one part; return the checksum up to its end, and the response."""
        state = {}

        def blocks():
            self._count(first)  # an earlier try has failed
            state["digest"] = before.copy()
            return _blocks(self.local, self._sent, state["digest"], first, length)

        headers = {"Content-Range": f"bytes {first}-{first + length - 1}/{self.local.size}"}
        answer = self.job.deliver(self.path, length, blocks, headers, expect=(405, 409))
        if answer.status == 405:  # an empty folder of an earlier upload has that name
            self.job.platform.remove(self.job.name, self.local.path)
            answer = self.job.deliver(self.path, length, blocks, headers, expect=(409,))
        if answer.status == 409 and not answer.msg.startswith("Content-Range:"):
            self.job.platform.web.judge(answer, ())
        return state.get("digest", before), answer

    def _arrived(self) -> int:
        headers = {"Content-Range": f"bytes */{self.local.size}"}
        answer = self.job.platform.web.call("PUT", self.path, None, headers)
        offset = answer.headers.get("Upload-Offset", "0")
        return min(int(offset), self.local.size) if offset.isdecimal() else 0

    def _there(self) -> bool:
        remote = self.job.platform.file(self.job.name, self.local.path)
        return remote is not None and remote.size == self.local.size

    def _sent(self, length: int) -> None:
        self.job.check_stopping(length)
        self._count(self.counted + length)

    def _count(self, size: int, moved: bool = True) -> None:
        """Count `size` bytes of this file as stored."""
        self.job.progress.add(size - self.counted, moved=moved)
        self.counted = size


class _Heartbeat:
    """Reports the progress to the platform every few seconds; ends the upload if the dataset takes no more bytes."""

    def __init__(self, platform: Platform, name: str, progress: Progress, enabled: bool):
        self.platform, self.name, self.progress = platform, name, progress
        self.end, self.refusal = threading.Event(), ""
        self.thread = threading.Thread(target=self._run, daemon=True) if enabled else None

    def __enter__(self):
        if self.thread:
            self.thread.start()
        return self

    def __exit__(self, kind, failure, trace):
        self.end.set()
        if self.refusal and (kind is None or isinstance(failure, Failure)):
            raise Failure(REFUSED, self.refusal)

    def _run(self) -> None:
        while not self.end.wait(HEARTBEAT_S):
            try:
                answer = self.platform.heartbeat(self.name, "creating", self.progress.percent(), expect=(403,))
            except Failure:
                continue  # the uploads meet the same problem and report it
            if answer.status == 403 and not self.end.is_set():
                self.refusal = f"dataset {self.name}: {answer.msg}"
                self.platform.web.stopping.set()
                return


def _blocks(local: Local, count, digest, first: int = 0, length=None):
    """Yield the file's bytes in blocks, as many as when the folder was read. Raises Failure if it has changed."""
    try:
        with open(local.source, "rb", buffering=0) as file:
            file.seek(first)
            left = local.size - first if length is None else length
            while left:
                block = file.read(min(BLOCK, left))
                if not block:
                    break
                left -= len(block)
                digest.update(block)
                count(len(block))
                yield block
            if left or local.changed(os.fstat(file.fileno())):
                raise Failure(LOCAL, f"{local.path} changed during the upload; run the command again")
    except OSError as problem:
        raise Failure(LOCAL, f"{local.source}: {problem.strerror}")
