"""`push` to a dataset whose files stay in a bucket: they are sent to the bucket itself, and listed once at the end.

Resumed where it was interrupted: objects that the bucket has with the same size and checksum (the ETag: the MD5 of the
content, or of those of its parts) are left, and so are the parts of an unfinished upload.
"""

from __future__ import annotations

import argparse
import base64
import threading
import time
from urllib.parse import quote

from . import datasets, shown
from .bucket import Answer, Bucket, md5
from .connection import Rest
from .parts import Large
from .texts import tr
from .transfer import upload as uploads
from .transfer.errors import DAMAGED, REFUSED, UNREACHABLE, USAGE, Failure
from .transfer.pool import each
from .transfer.progress import Progress
from .transfer.scan import Local, scan

AT_ONCE = 200  # files whose addresses are asked for together
FRESH_S = 200  # of the 300 seconds for which an address is good


def push(rest: Rest, options: argparse.Namespace, say, there) -> dict:
    """Send a folder to the bucket of an external dataset, which is created where `there` is None. Raises Failure."""
    skipped: list = []
    files = scan(options.dir, options.follow, lambda line: (skipped.append(line), say(line)), options.all)
    if not files:
        raise Failure(USAGE, tr("{dir}: no files to send", dir=options.dir))
    _prepare(rest, options, there)
    total = sum(local.size for local in files)
    with Progress(tr("uploading"), total, len(files), bool(options.quiet)) as progress:
        rest.web.note = progress.say
        work = Sending(rest, options.name, files, progress, options.replace)
        work.send_all(options.jobs)
        sent = progress.moved
    row = datasets.refreshed(rest, options.name)
    refused = work.refusals()
    _require_all(rest, options.name, [local for local in files if local.path not in work.refused])
    if refused:
        raise Failure(REFUSED, refused)
    options.show = lambda done: shown.line(
        tr("{files} files with {bytes} bytes in {dataset}@{version} ({sent} bytes sent)", **done)
    )
    return {
        "dataset": options.name, "user": rest.user, "files": len(files), "bytes": total, "skipped": skipped,
        "sent": sent, "state": row["state"], "version": row["version"],
    }  # fmt: skip


def _prepare(rest: Rest, options: argparse.Namespace, there) -> None:
    name, target = options.name, (options.to or "").replace("://", "/", 1).rstrip("/")
    if there is None:
        fields = {"name": name, "source": target, "title": options.title or None, "tenant": None, "external": True}
        datasets.create_dataset(rest, argparse.Namespace(**fields), lambda line: None)  # it may say that it is empty
        return
    if not there.get("external"):
        raise Failure(REFUSED, tr("the files of the dataset {name} are not in a bucket", name=name))
    if target and target != there["src"].rstrip("/"):
        raise Failure(REFUSED, tr("the dataset {name} is in {place}", name=name, place=there["src"]))
    if options.title and options.title != there.get("title"):
        rest.data.retitle(name, options.title)


def _require_all(rest: Rest, name: str, files: list) -> None:
    """Raise Failure unless the dataset has the files with their sizes."""
    listed = {row["path"]: row["size"] for row in rest.rows(f"datasets/{quote(name, safe='')}/files", 1 << 30)}
    for local in files:
        if listed.get(local.path) != local.size:
            raise Failure(REFUSED, tr("{path} is not in the bucket as it was sent", path=local.path))


class Sending:
    """The work of all threads: first each file, then the parts of large ones."""

    def __init__(self, rest: Rest, name: str, files: list, progress: Progress, replace: bool):
        self.rest, self.files, self.progress, self.replace = rest, files, progress, replace
        self.place = f"datasets/{quote(name, safe='')}/uploads"
        self.index = {local.path: number for number, local in enumerate(files)}
        self.rows: dict = {}  # path: (when it was asked for, row)
        self.refused: dict = {}
        self.large: list = []
        self.bucket: Bucket | None = None
        self.lock = threading.Lock()

    def send_all(self, jobs: int) -> None:
        """Send what the bucket does not have. Raises Failure; files that cannot be uploaded do not stop the others."""
        for local in self.files:
            row = self.row(local)
            if not row["reason"]:
                self.bucket = Bucket(row["head"], self.rest.web)
                each(self.send_file, self.files, jobs, self.bucket)
                self._send_parts(jobs)
                return
            self._refuse(local, row["reason"])

    def _send_parts(self, jobs: int) -> None:
        """Send the parts of large files, all of them once more where the bucket refuses to go on with an upload."""
        waiting = self.large
        for _ in range(uploads.TRIES):
            tasks = [(large, number) for large in waiting for number in large.numbers]
            each(lambda task: task[0].send_part(task[1]), tasks, jobs, self.bucket)
            waiting = [large for large in waiting if large.fails]
            for large in waiting:
                large.begin_anew(self._address(large.local, "create"))
        if waiting:
            raise waiting[0].lost()

    def row(self, local: Local, fresh: bool = False) -> dict:
        """Return the addresses of a file, which are asked for with those of the next files. Raises Failure."""
        with self.lock:
            asked, row = self.rows.get(local.path, (None, None))
            if row is None or fresh or time.monotonic() - asked > FRESH_S:
                first = self.index[local.path]
                now, batch = time.monotonic(), self.files[first : first + AT_ONCE]
                body = {"files": [{"path": one.path, "size": one.size} for one in batch]}
                answer = self.rest.send("POST", self.place, body).json()
                self.rows.update({batch[at].path: (now, found) for at, found in enumerate(answer["files"])})
                row = self.rows[local.path][1]
            return row

    def _address(self, local: Local, kind: str):
        return lambda fresh: self._good(self.row(local, fresh), local)[kind]

    @staticmethod
    def _good(row: dict, local: Local) -> dict:
        if row["reason"]:  # since the last time it was asked for
            raise Failure(REFUSED, f"{local.path}: {row['reason']}")
        return row

    def _refuse(self, local: Local, reason: str) -> None:
        if local.path not in self.refused:
            self.refused[local.path] = reason
            self.progress.say(f"{local.path}: {reason}")

    def refusals(self) -> str:
        """Return one line for the files that were refused, "" for none."""
        for path, reason in sorted(self.refused.items()):
            return tr(
                "{path}: {reason} ({files} files were not sent)", path=path, reason=reason, files=len(self.refused)
            )
        return ""

    def send_file(self, local: Local) -> None:
        """Send a file unless the bucket has it, or prepare it for `send_part`. Raises Failure."""
        self._send(local, self.row(local))
        with self.lock:
            self.rows.pop(local.path, None)

    def _send(self, local: Local, row: dict) -> None:
        if row["reason"]:
            self._refuse(local, row["reason"])
            return
        there = self._head(local)
        if there is not None:
            if self._same(local, there, row["part"]):
                self.progress.add(local.size, moved=False)
                self.progress.file_done()
                return
            if not self.replace:
                line = tr("{path} is in the bucket with other content; use --replace to replace it", path=local.path)
                raise Failure(REFUSED, line)
        if not row["part"]:
            self._send_whole(local, row["type"])
            self.progress.file_done()
            return
        large = Large(self, local, row)
        large.begin(self._address(local, "find"), self._address(local, "create"))
        with self.lock:
            self.large.append(large)

    def _head(self, local: Local):
        answer = self.bucket.ask("HEAD", self._address(local, "head"), expect=(404,))
        return None if answer.status == 404 else answer

    def is_there(self, local: Local, part: int) -> bool:
        """Return whether the bucket has the file. Raises Failure."""
        there = self._head(local)
        return there is not None and self._same(local, there, part)

    def _same(self, local: Local, there: Answer, part: int) -> bool:
        if there.headers.get("Content-Length") != str(local.size):
            return False
        tag = (there.headers.get("ETag") or "").strip('"')
        whole, parts = md5(), []
        for start in range(0, local.size, part or local.size or 1):
            one = md5()
            for block in uploads._blocks(local, self.check, one, start, min(part or local.size, local.size - start)):
                whole.update(block)
            parts.append(one.digest())
        return tag in {whole.hexdigest(), f"{md5(b''.join(parts)).hexdigest()}-{len(parts)}"}

    def check(self, _count: int) -> None:
        """Raise Failure as soon as another thread has failed."""
        if self.bucket.stopping.is_set():
            raise Failure(UNREACHABLE, "stopped")

    def _send_whole(self, local: Local, kind: str) -> None:
        digest = md5()
        body = b"".join(uploads._blocks(local, self.check, digest))
        headers = {"Content-Type": kind} if kind else {}
        self.deliver(local, self._address(local, "put"), digest, len(body), lambda: [body] if body else [], headers)
        self.progress.add(len(body))

    def deliver(self, local: Local, address_of, digest, size: int, blocks, headers: dict, expect=()) -> Answer:
        """Send bytes whose checksum the server compares, again where it differs. Raises Failure."""
        headers = {**headers, "Content-MD5": base64.b64encode(digest.digest()).decode()}
        for _ in range(uploads.TRIES):
            try:
                return self.bucket.put("PUT", address_of, size, blocks, headers, expect)
            except Failure as failure:
                if failure.code != DAMAGED:
                    raise
            self.progress.say(tr("{path}: checksum mismatch, sending it again", path=local.path))
        raise Failure(DAMAGED, tr("{path}: checksum mismatch, also after retries", path=local.path))
