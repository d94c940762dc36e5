"""`pull` and `push`: outputs of jobs and datasets, resumed where they were interrupted."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from . import shown, uploading
from .connection import Rest
from .ignoring import Pattern
from .texts import tr
from .transfer import download as downloads
from .transfer.errors import LOCAL, Failure
from .transfer.pool import each
from .transfer.progress import Progress
from .transfer.service import Remote
from .transfer.upload import only_own, upload


def declare(command) -> None:
    """Add the verbs."""
    parser = command("pull", pull, tr("fetch the output of a job, or a dataset; continues where it was interrupted"))
    parser.add_argument("name", metavar="NAME", help=tr("a job; with --dataset a dataset, or owner/name"))
    parser.add_argument("dir", metavar="DIR", nargs="?", help=tr("folder to write to (default: NAME)"))
    parser.add_argument("--dataset", action="store_true", help=tr("NAME is a dataset"))
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help=tr("only files that match, such as 'ckpt/*'")
    )
    _parallel(parser)
    parser = command("push", push, tr("send a folder as a dataset; continues where it was interrupted"))
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("--name", required=True, help=tr("name of the dataset: letters a to z and dots"))
    parser.add_argument("--title", default="", help=tr("what pages call it"))
    parser.add_argument("--to", metavar="s3/BUCKET[/PATH]", help=tr("keep the files in a bucket: an external dataset"))
    parser.add_argument(
        "--replace", action="store_true", help=tr("replace a dataset of that name, in a bucket the files that differ")
    )
    parser.add_argument("--follow", action="store_true", help=tr("follow symbolic links"))
    parser.add_argument("--all", action="store_true", help=tr("send .DS_Store, Thumbs.db, .git and the like, too"))
    _parallel(parser)


def _parallel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-j", "--jobs", type=_threads, default=4, metavar="N", help=tr("transfers at a time (default: 4)")
    )


def push(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Send a folder as a dataset, to a bucket where the dataset is external; return what was sent. Raises Failure."""
    only_own(options.name, "uploaded")
    there = rest.data.dataset(options.name)
    if options.to or (there is not None and there.get("external")):
        return uploading.push(rest, options, say, there)
    options.part = 64  # MiB
    return upload(rest.data, options, say)


def pull(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Fetch the output of a job, or a dataset; return what was fetched. Raises Failure."""
    folder = options.dir or options.name.rpartition("/")[2]
    if options.dataset:
        options.dir = folder
        return downloads.download(rest.data, options, say)
    outputs = Outputs(rest, options.name)
    wanted = [Pattern(text) for text in options.only or ()]
    files = [each for each in outputs.listed() if not wanted or any(_matches(pattern, each.path) for pattern in wanted)]
    total, received = sum(file.size for file in files), 0
    drafts = Path(folder) / downloads._free_name(files)
    try:
        drafts.mkdir(parents=True, exist_ok=True)
        with Progress(tr("fetching"), total, len(files), bool(options.quiet)) as progress:
            rest.web.note = progress.say
            work = OutputDownload(outputs, options.name, Path(folder), drafts, progress)
            each(work.download_file, files, options.jobs, rest.web)
            received = progress.moved
        downloads._clear(drafts)
    except OSError as problem:
        raise Failure(LOCAL, f"{problem.filename or folder}: {problem.strerror}")
    options.show = lambda done: shown.line(
        tr("{files} files with {bytes} bytes in {dir} ({received} bytes received)", **done)
    )
    return {"job": options.name, "dir": folder, "files": len(files), "bytes": total, "received": received}


def _matches(pattern: Pattern, path: str) -> bool:
    """Return whether the pattern matches the path or a folder above it."""
    parts = path.split("/")
    return any(pattern.matches("/".join(parts[:end]), end < len(parts)) for end in range(1, len(parts) + 1))


class Output(Remote):
    """A file of a job's output, as it was when it was listed."""

    def __init__(self, row: dict):
        super().__init__(row["path"], row["size"], "", row["modified"])
        text = re.sub(r"(\.\d{6})\d*", r"\1", row["modified"]).replace("Z", "+00:00")
        self.moment = datetime.fromisoformat(text).timestamp()


class Outputs:
    """The output of a job, in the form in which Download asks for files."""

    def __init__(self, rest: Rest, job: str):
        self.rest, self.web, self.job = rest, rest.web, job

    def listed(self) -> list:
        """Return the files. Raises Failure."""
        rows = self.rest.rows(f"jobs/{quote(self.job, safe='')}/artifacts", 1 << 30)
        files = [Output(row) for row in rows]
        for file in files:
            downloads._checked(file.path)
        return files

    def file_path(self, job: str, path: str) -> str:
        """Return the address of a file."""
        return self.rest.path(f"jobs/{quote(job, safe='')}/artifacts/{quote(path, safe='/')}")


class OutputDownload(downloads.Download):
    """Files without checksums: one that is there with the size and the time of the listing is not fetched again."""

    of_one_object = False  # a running job appends to its files

    def download_file(self, remote) -> None:
        """Fetch one file. Raises Failure."""
        target = self.folder.joinpath(*remote.path.split("/"))
        try:
            info = target.lstat()
            there = info.st_size == remote.size and abs(info.st_mtime - remote.moment) < 0.01
        except OSError:
            there = False
        if there:
            self.progress.add(remote.size, moved=False)
        else:
            state = f"{remote.path} {remote.size} {remote.modified}"  # an older draft is of another content
            draft = self.drafts / hashlib.sha256(state.encode("utf-8")).hexdigest()
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                self._patiently(remote, draft)
                os.utime(str(draft), (remote.moment, remote.moment))
                os.replace(str(draft), str(target))
            except OSError as problem:
                raise Failure(LOCAL, f"{target}: {problem.strerror}")
        self.progress.file_done()

    def _rest(self, remote, draft: Path, have: int) -> None:
        super()._rest(remote, draft, have)
        if draft.stat().st_size > remote.size:  # a running job has appended to it
            os.truncate(str(draft), remote.size)


def _threads(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise ValueError
    return value


_threads.__name__ = "number from 1 to 64"
