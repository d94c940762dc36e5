"""Sends a checkout to the user's `.home`, only what differs from what is there, and submits what runs it.

A job runs the snapshot that the platform takes when it is submitted. Whether that is what was sent is compared
afterwards: somebody else may have sent the same checkout at the same moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import random
import re
import string
import tempfile
from types import SimpleNamespace

from . import profiles
from .checkout import Checkout
from .connection import Rest
from .texts import tr
from .transfer.errors import LOCAL, REFUSED, USAGE, Failure
from .transfer.places import folder
from .transfer.pool import each
from .transfer.progress import Progress
from .transfer.scan import Local
from .transfer.service import HOME
from .transfer.upload import Upload

PLACE = "checkouts"
SAFE = re.compile(r"[A-Za-z0-9._-]{1,120}")
NOTEBOOK = ".ipynb"
TRIES, THREADS = 3, 8
AT_ONCE = 1000  # files that the platform is asked about
HEADER = re.compile(r"^# /// script[ \t]*\n(?:#(?: .*)?\n)*?# ///[ \t]*\n", re.MULTILINE)
START = """import os, sys

script = os.path.join(os.path.dirname(os.path.abspath(__file__)), *{parts!r})
os.execv(sys.executable, [sys.executable, script, *sys.argv[1:]])
"""


def submit(rest: Rest, checkout: Checkout, fields: dict, options, say) -> dict:
    """Send the checkout and submit a job of it, with the packages that it names unless `fields` say which; return the
    job, as REST has it. Raises Failure.
    """
    fields = {"find_requirements": not {"requirements", "environment"} & set(fields), **fields}
    for attempt in range(TRIES):
        sent = send(rest, checkout, options.quiet, say, fresh=attempt > 0)
        job = _create(rest, {**fields, "entry": sent.places[0]})
        difference = sent.compare(rest.get(f"jobs/{job['name']}/code"))
        if not difference:
            return job
        rest.send("PUT", f"jobs/{job['name']}:cancel", expect=(403,))
        say(tr("{file} was changed by somebody else while it was sent; sending again", file=difference))
        if options.name:
            raise Failure(REFUSED, tr("job {name} was cancelled; submit it under another name", name=job["name"]))
    raise Failure(REFUSED, tr("the checkout could not be sent unchanged"))


def send(rest: Rest, checkout: Checkout, quiet: bool, say, fresh: bool = False) -> Sent:
    """Send the checkout, with `fresh` to a new folder; return it with its `places`. Raises Failure."""
    sent = Sent(rest, checkout, quiet, say, fresh)
    try:
        sent.send()
    except _Stale:  # this token may not delete, so the files go to a new folder
        sent = Sent(rest, checkout, quiet, say, True)
        sent.send()
    return sent


def _create(rest: Rest, fields: dict) -> dict:
    try:
        return rest.send("POST", "jobs", fields).json()
    except Failure as failure:
        if fields["find_requirements"] and failure.line.startswith("requirements: "):
            line = failure.line.replace(posixpath.dirname(fields["entry"]) + "/", "")  # as the user's checkout has it
            raise Failure(failure.code, tr("{problem} (--no-requirements: install none)", problem=line))
        raise


def job_name(script: str) -> str:
    """Return a name for a job of the script, with letters that no other has."""
    stem = re.sub("[^a-z]", "", os.path.splitext(os.path.basename(script))[0].lower())[:40] or "job"
    return stem + "".join(random.SystemRandom().choice(string.ascii_lowercase) for _ in range(5))


class _Stale(Exception):
    """The folder has files that may not be deleted."""


class Sent:
    """A checkout in its folder of `.home`, which is remembered for the next time.

    `places` are the entries of the checkout, as fields of jobs name them; `launchers` the files that start those that
    are in a folder: the snapshot of a job begins at the folder of its entry.
    """

    def __init__(self, rest: Rest, checkout: Checkout, quiet: bool, say, fresh: bool):
        self.rest, self.checkout, self.quiet, self.say = rest, checkout, quiet, say
        self.launchers: dict = {}
        self.folder = self._folder(fresh)
        self.places = [f"{self.folder}/{self._start_of(entry)}" for entry in checkout.entries]
        self.sums: dict = {}

    def _start_of(self, entry: str) -> str:
        """Return the file at the top by which the entry is started: itself, or a launcher."""
        if "/" not in entry and SAFE.fullmatch(entry):
            return entry
        launcher = re.sub("[^A-Za-z0-9._-]", "_", entry.replace("/", "__"))[-120:]
        text = (self._header(entry) + START.format(parts=entry.split("/"))).encode()
        if entry.endswith(NOTEBOOK):
            text = self._notebook(entry)
        if self.launchers.setdefault(launcher, text) != text:
            raise Failure(USAGE, tr("{file}: its name is too much like that of another script", file=entry))
        return launcher

    def _notebook(self, entry: str) -> bytes:
        """Return a copy of a notebook that names the folder in which its modules are; as it is where it is damaged."""
        with open(os.path.join(self.checkout.root, entry), "rb") as file:
            text = file.read()
        try:
            notebook = json.loads(text.decode("utf-8-sig"))
            notebook.setdefault("metadata", {})["mlp_folder"] = posixpath.dirname(entry)
        except (ValueError, TypeError, AttributeError):  # the platform says what is wrong with it
            return text
        return json.dumps(notebook).encode()

    def _header(self, entry: str) -> str:
        """Return the script's header (PEP 723), "" without one: what starts the script needs the same packages."""
        with open(os.path.join(self.checkout.root, entry), encoding="utf-8", errors="replace") as file:
            match = HEADER.search(file.read())
        return match.group(0) if match else ""

    def _folder(self, fresh: bool) -> str:
        project = os.environ.get("GITHUB_REPOSITORY") or os.environ.get("CI_PROJECT_PATH") or ""
        if project and not fresh:  # the machines of a CI remember nothing
            return f"{PLACE}/ci-{re.sub('[^A-Za-z0-9]+', '-', project)[-60:]}"
        stem = re.sub("[^A-Za-z0-9]", "", os.path.basename(self.checkout.root))[:40] or "checkout"
        new = f"{PLACE}/{stem}-{random.SystemRandom().getrandbits(32):08x}"
        try:
            path = folder("XDG_CACHE_HOME", ".cache") / "checkouts.json"
        except Failure as problem:
            self.say(problem.line)
            return new
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        key = f"{self.rest.web.url} {self.rest.user} {self.checkout.root}"
        if not isinstance(known, dict) or fresh or not isinstance(known.get(key), str):
            known = known if isinstance(known, dict) else {}
            known[key] = new
            profiles.write(path, known)
        return known[key]

    def send(self) -> None:
        """Send what differs, and delete what the checkout no longer has. Raises Failure, _Stale."""
        with tempfile.TemporaryDirectory(prefix="mlp-") as drafts:
            generated = {**self.checkout.git_files(self.launchers), **self.launchers}
            files = dict(self.checkout.files)
            for number, (path, data) in enumerate(generated.items()):
                draft = os.path.join(drafts, str(number))
                with open(draft, "wb") as file:
                    file.write(data)
                files[path] = Local(path, draft, os.stat(draft))
            there = self._there()
            for path in sorted(set(there) - {f"{self.folder}/{path}" for path in files}):
                self._remove(path)
            self._send(files, there)

    def _there(self) -> dict:
        answer = self.rest.web.call(
            "PROPFIND", self.rest.data.file_path(HOME, self.folder), None, {"Depth": "0"}, (404,)
        )
        if answer.status == 404:
            return {}
        return self.rest.data._propfind(HOME, self.folder, "infinity")

    def _remove(self, path: str) -> None:
        address = self.rest.data.file_path(HOME, path)
        if self.rest.web.call("DELETE", address, expect=(403, 404)).status == 403:
            raise _Stale

    def _send(self, files: dict, there: dict) -> None:
        total = sum(local.size for local in files.values())
        with Progress(tr("sending"), total, len(files), self.quiet) as progress:
            work = Upload(self.rest.data, HOME, there, progress, False)

            self.sums = {path: _sum(local) for path, local in files.items()}
            right = {
                path
                for path, local in files.items()
                if (remote := there.get(f"{self.folder}/{path}")) is not None
                and (remote.size, remote.sha256) == (local.size, self.sums[path])
            }
            right |= self._placed([path for path in files if path not in right])

            def send_file(local: Local) -> None:
                """Send one file unless the platform has it."""
                if local.path in right:
                    progress.add(local.size, moved=False)
                    progress.file_done()
                    return
                info = SimpleNamespace(st_size=local.size, st_mtime_ns=local.mtime_ns)
                work.upload_file(Local(f"{self.folder}/{local.path}", local.source, info))

            each(send_file, list(files.values()), THREADS, self.rest.web)
            self.moved = progress.moved
        self.say(tr("sent {moved} of {total} bytes, {count} files", moved=self.moved, count=len(files), total=total))

    def _placed(self, paths: list) -> set:
        """Let the platform write the files whose contents it has of an earlier job; return their paths."""
        placed: set = set()
        for begin in range(0, len(paths), AT_ONCE):
            some = paths[begin : begin + AT_ONCE]
            body = {"folder": posixpath.basename(self.folder), "files": {path: self.sums[path] for path in some}}
            answer = self.rest.send("POST", "checkouts", body, expect=(403, 404))
            if answer.status != 200:  # an older platform; or what is wrong with a path is said where it is sent
                return placed
            placed |= set(some) - set(answer.json()["missing"])
        return placed

    def compare(self, code: dict) -> str:
        """Return the path of a file that the job's code has otherwise than it was sent, "" if there is none."""
        start = len(self.folder) + 1
        kept = {file["path"][start:]: file["sha256"] for file in code["files"]}
        skipped = tuple(each["path"][start:] for each in code["skipped"])
        wrong = [path for path, digest in kept.items() if self.sums.get(path) != digest]
        if not code["more"]:
            wrong += [path for path in self.sums if path not in kept and not path.startswith(skipped)]
        large = [each["path"] for each in code["skipped"] if each["reason"] in ("bytes", "count", "storage")]
        if large or code["more"]:
            self.say(
                tr(
                    "files beyond what the platform keeps with a job, which reads them where they were sent: {count}",
                    count=len(large) + code["more"],
                )
            )
        return min(wrong, default="")


def _sum(local: Local) -> str:
    digest = hashlib.sha256()
    try:
        with open(local.source, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError as problem:
        raise Failure(LOCAL, f"{local.source}: {problem.strerror}")
    return digest.hexdigest()
