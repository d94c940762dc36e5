"""Brings the artifacts of runs here: by the server's proxy, or by the download of its own pages, which reads whatever
store the server keeps them in. Files that are here already, by their path and size, are not fetched again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from jobs.artifacts import files, space
from jobs.models import Job
from kernel import disk, storage
from kernel.errors import Refused

from .memory import Memory
from .report import NEW, SAME, Report
from .server import Away, ServerError
from .source import Artifact, Source

AT_ONCE = 4
TOGETHER = 16
PIECE = 1 << 20


class Short(Exception):
    """A download has ended early, or is larger than it may be."""


@dataclass
class Folder:
    """A folder of a run's output that receives files, and what the report calls it."""

    job: Job
    path: str
    name: str
    number: int = 0
    size: int = 0
    clean: bool = True
    here: dict[str, int] = field(default_factory=dict)

    def poll(self) -> None:
        """Record which files are there."""
        self.here = {path: info.st_size for path, info in storage.files(_folder(self.job, self.path))}


class Files:
    """Takes the files of runs. `again` fetches those that are here, too."""

    def __init__(self, source: Source, report: Report, memory: Memory, again: bool = False):
        self.source, self.report, self.memory, self.again = source, report, memory, again

    def of_run(self, run_id: str, uri: str, job: Job, name: str) -> tuple[int, int, bool]:
        """Take the artifacts of a run; return how many it has, their bytes, and whether all are here."""
        folder = Folder(job, "artifacts", name)
        return self.take(folder, self.source.artifacts(run_id, uri))

    def take(self, folder: Folder, artifacts: Iterator[Artifact]) -> tuple[int, int, bool]:
        """Take files into a folder; return how many there are, their bytes, and whether all are here."""
        folder.poll()
        rest = self._missing(folder, artifacts)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while some := list(islice(rest, TOGETHER)):
                for artifact, draft in pool.map(self._fetch, some):
                    self._store(folder, artifact, draft)
        return folder.number, folder.size, folder.clean

    def _missing(self, folder: Folder, artifacts: Iterator[Artifact]) -> Iterator[tuple[Artifact, int]]:
        """Yield the files that are to be fetched, and how many bytes each may have."""
        for artifact in self._listed(folder, artifacts):
            if artifact.problem is not None:
                folder.clean = False
                self.report.problem(f"{folder.name}: folder {artifact.path[:200]}", artifact.problem)
                continue
            folder.number += 1
            folder.size += artifact.size or 0
            if not self.again and artifact.size is not None and folder.here.get(artifact.path) == artifact.size:
                self.report.count("file", SAME)
                continue
            self.memory.require_room()
            try:
                files.checked(f"{folder.path}/{artifact.path}")
                yield artifact, space.require(folder.job, artifact.size or 0)
            except (Refused, disk.DiskFull) as refused:
                self._refused(folder, artifact, refused.msg)

    def _listed(self, folder: Folder, artifacts: Iterator[Artifact]) -> Iterator[Artifact]:
        try:
            yield from artifacts
        except Away:
            raise
        except ServerError as problem:
            folder.clean = False
            self.report.problem(f"{folder.name}: the list of its artifacts", problem)

    def _fetch(self, wanted: tuple[Artifact, int]) -> tuple[Artifact, Path | Exception]:
        """Download a file into the spool. Uses no database: it runs in a thread."""
        artifact, most = wanted
        draft = storage.spool_dir() / f"artifact-{secrets.token_hex(12)}"

        def take(body: BinaryIO, length: int | None) -> None:
            number = 0
            with draft.open("wb") as file:
                while piece := body.read(PIECE):
                    number += len(piece)
                    if number > most:
                        raise Short(f"is larger than the {most} bytes that are left")
                    file.write(piece)
            if length is not None and number != length:
                raise ServerError(f"the download ended after {number} of {length} bytes", 503)

        try:
            self.source.server.download(artifact.address, take)
        except (ServerError, Short, OSError) as problem:
            draft.unlink(missing_ok=True)
            return artifact, problem
        return artifact, draft

    def _store(self, folder: Folder, artifact: Artifact, draft: Path | Exception) -> None:
        if isinstance(draft, Away):
            raise draft
        if isinstance(draft, Exception):
            self._refused(folder, artifact, draft)
            return
        try:
            size = draft.stat().st_size
            files.put(folder.job, f"{folder.path}/{artifact.path}", draft)
            self.report.count("file", NEW)
            self.report.count("byte", NEW, size)
        except Refused as refused:
            self._refused(folder, artifact, refused.msg)
        except OSError as problem:
            self._refused(folder, artifact, problem.strerror or problem)
        finally:
            draft.unlink(missing_ok=True)

    def _refused(self, folder: Folder, artifact: Artifact, why: object) -> None:
        folder.clean = False
        self.report.problem(f"{folder.name}: artifact {artifact.path[:200]}", why)


def count(jobs: Iterable[int]) -> dict[str, dict[int, int]]:
    """Return how many artifacts runs have, and their bytes."""
    counts: dict[str, dict[int, int]] = {"file": {}, "byte": {}}
    for job in Job.objects.filter(pk__in=jobs, artifact_space__isnull=False).select_related("user"):
        sizes = [info.st_size for _path, info in storage.files(_folder(job, "artifacts"))]
        counts["file"][job.pk], counts["byte"][job.pk] = len(sizes), sum(sizes)
    return counts


def _folder(job: Job, path: str) -> Path:
    return storage.job_dir(job.user.username, job.name) / path
