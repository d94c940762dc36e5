"""The journals of reports that a run leaves in its job's folder: what the platform had not taken when the run ended.

Written by mlp_report (jobs/report/mlp_report/keeping.py), so by a script, which may write anything there. Each report
is stored under the id that it has over HTTP, so one that had arrived after all counts once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from datetime import timedelta
from typing import BinaryIO

from django.utils import timezone

from jobs.auth import message_prefix
from jobs.models import Job
from kernel import sanitize, storage
from kernel.bus import Delivery
from kernel.errors import Fault
from tracking.metrics.serializers import MetricsIn, ValuesIn

from . import recording

log = logging.getLogger(__name__)

FOLDER = "metrics"  # of the job's
NAME = re.compile(r"report\.(\d{1,6})\.([0-9a-f]{16})\.jsonl")
MAX_FILES, MAX_BYTES, MAX_LINE = 100, 16 << 20, 64 << 10  # all files together: other jobs wait meanwhile
MAX_INVALID = 1000  # lines of a file, after which it is left
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
AT_ONCE = 1000  # reports in one transaction
WAIT_S = 60  # after the end of a run, for its earlier reports to be stored first


def collect(job: Job, ended: float | None) -> bool:
    """Store what the journals of a job have whose run has ended, at that Unix time; return whether to go on.

    Not while earlier reports of the run wait to be stored, for WAIT_S at most: these come first. Repeated, it stores
    nothing twice, so a crash in between loses nothing.
    """
    with _journals(job) as files:
        if not files:
            return True
        recent = ended is not None and 0 <= timezone.now().timestamp() - ended < WAIT_S
        if recent and not _earlier_are_stored(job):
            return False
        left = MAX_BYTES
        for name, run, file in files:
            stored, refused = 0, 0
            for deliveries, invalid in _batches(job, run, file, left):
                stored += recording.record(deliveries)
                refused += invalid
            left -= file.tell()
            if stored or refused:
                log.info("%s of job %s: %s reports stored, %s not valid", name, job, stored, refused)
    forget(job)
    return True


def forget(job: Job) -> None:
    """Remove the journals of a job."""
    with contextlib.suppress(OSError), _folder(job) as folder:
        for name in os.listdir(folder):
            if NAME.fullmatch(name):
                with contextlib.suppress(OSError):  # the script has made it a folder
                    os.unlink(name, dir_fd=folder)


def _earlier_are_stored(job: Job) -> bool:
    try:
        return recording.all_recorded(job)
    except Fault:  # the bus is unavailable: they come when it is back
        return True


@contextlib.contextmanager
def _folder(job: Job) -> Iterator[int]:
    """Open the folder of the journals, not through a link. Raises OSError."""
    top = os.open(storage.job_dir(job.user.username, job.name), storage.FOLDER)
    try:
        folder = os.open(FOLDER, storage.FOLDER, dir_fd=top)
    finally:
        os.close(top)
    try:
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def _journals(job: Job) -> Iterator[list[tuple[str, str, BinaryIO]]]:
    """Open the journals of the job's current attempt, as (name, run, file)."""
    with contextlib.ExitStack() as opened:
        journals = []
        with contextlib.suppress(OSError), _folder(job) as folder:
            for name in sorted(os.listdir(folder)):
                named = NAME.fullmatch(name)
                if named and int(named[1]) == job.attempt and len(journals) < MAX_FILES:
                    with contextlib.suppress(OSError):
                        handle = os.open(
                            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
                        )
                        file = opened.enter_context(os.fdopen(handle, "rb"))
                        if stat.S_ISREG(os.fstat(handle).st_mode):
                            journals.append((name, named[2], file))
        yield journals


def _batches(job: Job, run: str, file: BinaryIO, most: int) -> Iterator[tuple[list[Delivery], int]]:
    """Yield the reports in so many bytes of a journal by the thousand, and how many of their lines are none."""
    reports, invalid, left = [], 0, most
    while left > 0 and invalid < MAX_INVALID and (line := file.readline(MAX_LINE)):
        left -= len(line)
        report = _report(job, run, line)
        if report is None:
            invalid += 1
        else:
            reports.append(report)
        if len(reports) >= AT_ONCE:
            yield reports, 0
            reports = []
    yield reports, invalid


def _report(job: Job, run: str, line: bytes) -> Delivery | None:
    """Return the report in a line as it would have come over HTTP (api.py, series_api.py); None where it is none."""
    user, name = job.user.username, job.name
    try:
        kind, counter, row = sanitize.read_json(line)
        if not isinstance(counter, int) or not 0 <= counter < 10**15:
            return None
        number = f"{job.name}:{job.attempt}:{run}:{counter}"
        if kind == "m":
            row = {"user": user, "name": name, **MetricsIn.read(row)}
            subject, id_, data = recording.subject(user, name), f"{message_prefix(job)}{number}", row
        elif kind == "v":
            subject, id_ = recording.values_subject(user, name), f"{message_prefix(job)}values.{number}/1"
            data = [ValuesIn.read(row)]
        else:
            return None
    except Exception:  # whatever a script can write: it must not keep its job from ending
        return None
    sent = job.ended - timedelta(microseconds=1) if job.ended else timezone.now()  # it was stopped: just before that
    return Delivery(subject, json.dumps(data).encode(), id_, 0, sent)
