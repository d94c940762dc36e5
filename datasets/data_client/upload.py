"""`upload`: a folder becomes a dataset. Any interruption is resumed by the same command: what is there is compared by
size and checksum and only the rest is sent. Called by cli.py.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading

from .errors import DAMAGED, LOCAL, REFUSED, UNREACHABLE, Failure
from .pool import each
from .progress import Progress
from .scan import Local, scan
from .service import Platform, Remote

BLOCK = 1 << 20
WHOLE = 4 << 20  # up to this size a file is read first and its checksum sent along; larger ones are compared after
HEARTBEAT_S = 3.0
TRIES = 3


def upload(platform: Platform, options, say) -> dict:
    """Runs the command; returns what --json prints."""
    skipped: list = []
    files = scan(options.dir, options.follow, lambda line: (skipped.append(line), say(line)))
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
            each(job.one, files, options.jobs, platform.web)
        sent = progress.moved
    if not complete:
        platform.finish(options.name)
    return dict(result, sent=sent, state="ready")


def _prepare(platform: Platform, options, total: int) -> dict:
    """The dataset to upload into: a new one, or the one that an interrupted upload left."""
    name = options.name
    there = platform.dataset(name)
    if there is not None and there["state"] == "deleting":
        platform.wait_gone(name)
        there = None
    if there is not None:
        usable = there["state"] in ("creating", "ready") and there["size"] == total
        if usable and not (options.replace and there["state"] == "ready"):
            return there
        if not options.replace:
            raise _unusable(there, total)
        remove(platform, there)
    platform.create(name, total)
    return {"name": name, "size": total, "state": "creating"}


def remove(platform: Platform, there: dict) -> None:
    """Deletes the dataset whatever its state, and waits until its name is free."""
    name = there["name"]
    if there["state"] == "creating":
        platform.heartbeat(name, "error", 0, expect=(403,))
    platform.delete(name)
    platform.wait_gone(name)


def _unusable(there: dict, total: int) -> Failure:
    name = there["name"]
    if there["state"] == "error":
        line = "dataset {} is in error ({})".format(name, there.get("reason") or "no reason given")
    elif there["state"] == "creating":
        line = f"dataset {name} is being uploaded with {there['size']} bytes, the folder has {total}"
    else:
        line = f"dataset {name} exists already and is different"
    return Failure(REFUSED, line + "; --replace deletes it and starts anew")


def _different(name: str) -> Failure:
    return Failure(REFUSED, f"dataset {name} exists already and is different; --replace deletes it first")


def _clear(platform: Platform, name: str, files: list, there: dict, say) -> None:
    """Takes away what an earlier upload left and the folder does not have any more: it counts for the size."""
    wanted = {local.path for local in files}
    for path in sorted(set(there) - wanted):
        say(f"removing {path} from the dataset: it is not in the folder")
        platform.remove(name, path)
        del there[path]


class Upload:
    """The work on one file, done by several threads."""

    part = 64 << 20  # larger files go in parts of so many bytes

    def __init__(self, platform: Platform, name: str, there: dict, progress: Progress, complete: bool):
        self.platform, self.name, self.there = platform, name, there
        self.progress, self.complete = progress, complete

    def one(self, local: Local) -> None:
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
        for _ in _blocks(local, self.alive, digest):
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
            self.progress.say(f"{local.path} arrived damaged; sending it again")
            self.progress.add(-local.size)
        raise Failure(DAMAGED, f"{local.path}: arrived damaged {TRIES} times")

    def _put(self, local: Local) -> str:
        """Sends the file; returns the checksum of the bytes that were sent."""
        path = self.platform.file_path(self.name, local.path)
        if local.size <= WHOLE:
            digest = hashlib.sha256()
            body = b"".join(_blocks(local, self.alive, digest))
            headers = {"Repr-Digest": f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"}
            answer = self.deliver(path, len(body), lambda: [body] if body else [], headers)
            if answer.status == 405:  # an emptied folder of an earlier upload is in the way
                self.platform.remove(self.name, local.path)
                self.deliver(path, len(body), lambda: [body] if body else [], headers, expect=())
            self.progress.add(len(body))
            return digest.hexdigest()
        return PartsOf(self, local, path).send()

    def alive(self, _count: int) -> None:
        """Ends this thread's work as soon as another one has failed."""
        if self.platform.web.stopping.is_set():
            raise Failure(UNREACHABLE, "stopped")

    def deliver(self, path: str, size: int, blocks, headers: dict, expect=(405,)):
        return self.platform.web.send("PUT", path, size, blocks, headers, expect)


class PartsOf:
    """One large file, sent in parts: what an earlier try has brought there is only read, not sent again."""

    def __init__(self, job: Upload, local: Local, path: str):
        self.job, self.local, self.path = job, local, path
        self.counted = 0  # bytes of this file that the progress knows

    def send(self) -> str:
        """Returns the checksum of the file's bytes."""
        while True:
            have = self._arrived()
            digest = hashlib.sha256()
            for _ in _blocks(self.local, self.job.alive, digest, 0, have):
                pass
            self._count(have, moved=False)
            while have < self.local.size:
                length = min(self.job.part, self.local.size - have)
                sent, answer = self._part(have, length, digest)
                if answer.status == 409:
                    break  # a try whose answer was lost had brought it; or somebody else sends the same file
                have, digest = have + length, sent
            else:
                return digest.hexdigest()
            if have + length == self.local.size and self._there():
                return sent.hexdigest()

    def _part(self, first: int, length: int, before):
        """Sends one part; returns the checksum with it, and the answer."""
        state = {}

        def blocks():
            self._count(first)  # the try before was in vain
            state["digest"] = before.copy()
            return _blocks(self.local, self._sent, state["digest"], first, length)

        headers = {"Content-Range": f"bytes {first}-{first + length - 1}/{self.local.size}"}
        answer = self.job.deliver(self.path, length, blocks, headers, expect=(405, 409))
        if answer.status == 405:  # an emptied folder of an earlier upload is in the way
            self.job.platform.remove(self.job.name, self.local.path)
            answer = self.job.deliver(self.path, length, blocks, headers, expect=(409,))
        if answer.status == 409 and not answer.msg.startswith("Content-Range:"):
            self.job.platform.web.judge(answer, ())
        return state.get("digest", before), answer

    def _arrived(self) -> int:
        headers = {"Content-Range": f"bytes */{self.local.size}"}
        answer = self.job.platform.web.call("PUT", self.path, None, headers)
        told = answer.headers.get("Upload-Offset", "0")
        return min(int(told), self.local.size) if told.isdigit() else 0

    def _there(self) -> bool:
        remote = self.job.platform.file(self.job.name, self.local.path)
        return remote is not None and remote.size == self.local.size

    def _sent(self, length: int) -> None:
        self.job.alive(length)
        self._count(self.counted + length)

    def _count(self, size: int, moved: bool = True) -> None:
        """So much of this file is there now."""
        self.job.progress.add(size - self.counted, moved=moved)
        self.counted = size


class _Heartbeat:
    """Tells the platform every few seconds how far the upload is; a dataset that has ended ends the upload."""

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
                continue  # the uploads have the same trouble and say so
            if answer.status == 403 and not self.end.is_set():
                self.refusal = f"dataset {self.name}: {answer.msg}"
                self.platform.web.stopping.set()
                return


def _blocks(local: Local, count, digest, first: int = 0, length=None):
    """The file's bytes, exactly as many as it had when the folder was read. Raises Failure when it has changed."""
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
                raise Failure(LOCAL, f"{local.path} changed while it was uploaded; run the command again")
    except OSError as problem:
        raise Failure(LOCAL, f"{local.source}: {problem.strerror}")
