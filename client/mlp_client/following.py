"""Follows a job: its place in the queue, its log and its metrics, until it has ended.

The log goes to standard output as it is, everything else to standard error. A lost connection is opened again at the
byte after the last one that was printed.
"""

from __future__ import annotations

import http.client
import json
import threading
import time

from . import shown
from .connection import Connection, Rest
from .texts import tr
from .transfer.errors import Failure, Trouble

ENDED = ("finished", "error")
LOOK_EVERY_S, METRICS_EVERY_S, MOST_METRICS = 1.0, 2.0, 100
CANCELLED, TIMED_OUT = 130, 124


def exit_code(job: dict) -> int:
    """Return the exit code for a job that has ended: 0, that of its script, or one that says how it ended."""
    if job["state"] == "finished":
        return 0
    if job.get("outcome") in ("cancelled", "pruned"):
        return CANCELLED
    if job.get("outcome") == "timed_out":
        return TIMED_OUT
    code = job.get("exit_code") or 1
    return code if code <= 255 else 1


class Follower:
    """One job that is followed. `quiet` leaves out all but the log."""

    def __init__(self, rest: Rest, name: str, quiet: bool = False, metrics: bool = True):
        self.rest, self.name, self.quiet, self.offset = rest, name, quiet, 0
        self.metrics, self.seen = metrics and not quiet, 0
        self.over = threading.Event()

    def job(self) -> dict:
        """Return the job, as REST has it."""
        return self.rest.get(f"jobs/{self.name}")

    def to_end(self) -> dict:
        """Print what happens until the job has ended; return the job. Raises Failure, KeyboardInterrupt."""
        self._wait_in_queue()
        beside = threading.Thread(target=self._tell_metrics, daemon=True)
        if self.metrics:
            beside.start()
        try:
            self._follow_log()
            job = self.job()
            while job["state"] not in ENDED:
                time.sleep(0.2)
                job = self.job()
            self.print_what_is_there()
        finally:
            self.over.set()
        if self.metrics:
            beside.join()
        return job

    def _note(self, line: str) -> None:
        if not self.quiet:
            shown.note(line)

    def _wait_in_queue(self) -> None:
        last, job = "", self.job()
        while job["state"] == "creating":
            answer = self.rest.web.call("GET", self.rest.path(f"jobs/{self.name}/queue"), expect=(403,))
            if answer.status == 200:
                queue = answer.json()
                line = tr("queued: number {position} of {length}; {reason}", **{**queue, "reason": queue["reason"]})
                if line != last and last is not None:
                    self._note(line)
                last = line
            time.sleep(LOOK_EVERY_S)
            job = self.job()

    # --- the log --------------------------------------------------------------------------------------------------
    def _follow_log(self) -> None:
        def attempt():
            """Read on until the end; a reader that got something is not given up."""
            before = self.offset
            try:
                if self._read_events():
                    return _Done()
                raise Trouble(tr("the log was interrupted"))
            except Trouble:
                if self.offset > before:
                    return _Moved()
                raise

        while isinstance(self.rest.web.patiently(attempt), _Moved):
            continue

    def _read_events(self) -> bool:
        """Print the log from the offset on; return whether its end was reached. Raises Trouble, Failure."""
        web = self.rest.web
        headers = {"Accept": "text/event-stream"}
        response = web.open(self.rest.path(f"jobs/{self.name}/log", follow=1, offset=self.offset), headers)
        fields: dict = {}
        try:
            while True:
                line = _line_of(web, response)
                if line is None:
                    return False
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value[1:] if value.startswith(" ") else value
                    continue
                if fields.get("event") == "end":
                    return True
                if "id" in fields and "data" in fields:
                    self.print(json.loads(fields["data"]))
                    self.offset = int(fields["id"])
                fields = {}
        finally:
            web.close()

    def print_what_is_there(self) -> None:
        """Print what was written after the offset until now."""
        while True:
            path = self.rest.path(f"jobs/{self.name}/log", offset=self.offset)
            body = self.rest.web.call("GET", path).body
            if not body:
                return
            self.print(body.decode("utf-8", "replace"))
            self.offset += len(body)

    print = staticmethod(shown.text)

    # --- metrics --------------------------------------------------------------------------------------------------
    def _tell_metrics(self) -> None:
        """Print each new report of the job on standard error, until it has ended and once more."""
        own = Rest(Connection(self.rest.web.url, "", 0.0), self.rest.user)  # the other one belongs to the log
        own.web.headers, own.web.context = dict(self.rest.web.headers), self.rest.web.context
        last = False
        while not last:
            last = self.over.wait(METRICS_EVERY_S)
            try:
                answer = own.web.call("GET", own.path(f"jobs/{self.name}/metrics", limit=MOST_METRICS))
                total = int(answer.headers.get("X-Total-Count", "0"))
                rows = answer.json()[: max(0, total - self.seen)]
            except (Failure, Trouble):
                continue  # the log meets the same problem and says so
            self.seen = total
            for row in reversed(rows):
                self._note(metric_line(row))
        own.web.close()


class _Done:
    """The end of the log, in the form of an answer."""

    status = 200


class _Moved(_Done):
    """The connection was lost after something was read."""


def metric_line(row: dict) -> str:
    """Return one report as a line."""
    parts = [tr("epoch {number}", number=row["epoch"])]
    parts += [f"{name} {row[name]:.6g}" for name in ("loss", "accuracy") if row.get(name) is not None]
    if 0 <= row.get("progress", -1) <= 100:
        parts.append(f"{row['progress']}%")
    return "  ".join(parts)


def _line_of(web: Connection, response: http.client.HTTPResponse):
    """Return the next line without its end; None at the end of the response. Raises Trouble when it is interrupted."""
    try:
        line = response.readline()
    except (OSError, http.client.HTTPException, ValueError) as problem:
        web.close()
        raise web.trouble(problem)
    web.local.moved = time.monotonic()  # it is alive, though nothing may have been written
    return line.decode("utf-8", "replace").rstrip("\n") if line.endswith(b"\n") else None
