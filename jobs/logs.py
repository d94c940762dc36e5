"""A job's log for its readers: a chunk from an offset, the live log until its end, or its tail as plain text.

Used by api, pages and admin. The file is written by the run; it is bounded there (JOB_LOG_LIMIT). No link is followed:
the folder belongs to the job, and a link in it must not be read with the platform's rights.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from accounts.auth import credentials_of
from accounts.sharing import access
from kernel.errors import Refused
from kernel.slots import FOLLOWED_LOGS, Slot

from . import environment
from .models import Job

CHUNK = 16 << 20  # bytes of one answer
PIECE = 64 << 10  # bytes read at once while following
LOOK_EVERY_S = 0.25
ASK_EVERY_S = 1.0  # how often the database is asked whether the job has ended
JUDGE_EVERY_S = 2.0  # how often the reader's access is checked
QUIET_S = 15.0  # proxies end a response without data, many after 30 or 60 s
LONGEST_S = 3000  # of one response; a client that wants more asks again from the next offset
TEXT = "text/plain; charset=utf-8"
EVENTS = "text/event-stream"
OFFSET = re.compile("[0-9]{1,15}")
MAX_WORKERS = 16
WORKER = (
    "worker",
    {"type": "integer", "minimum": 0, "maximum": MAX_WORKERS - 1},
    "number of the worker, where each has a log of its own; default 0",
)
ELSEWHERE = "/-followed"  # to the server that needs no thread for a streaming response: gateway.conf.tmpl
# Colours and cursor movements are for terminals; a carriage return overwrites a line, as progress bars do.
TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def open_log(job: Job, worker: int = 0) -> BinaryIO | None:
    """Open the log; None while there is none, or when its path is not a regular file."""
    return environment.log_file(job, worker).open()


def worker_of(job: Job, worker: int) -> int:
    """Return the number of a worker with a log of its own. Raises Refused."""
    if worker and worker not in environment.workers_with_logs(job):
        raise Refused("no worker of this number has a log of its own", field="worker")
    return worker


def size(job: Job) -> int:
    file = open_log(job)
    if file is None:
        return 0
    with file:
        return os.fstat(file.fileno()).st_size


def read(job: Job, offset: int, most: int = CHUNK, worker: int = 0) -> bytes:
    """Return at most `most` bytes from `offset`; none where nothing is written yet."""
    file = open_log(job, worker)
    if file is None:
        return b""
    with file:
        file.seek(min(offset, os.fstat(file.fileno()).st_size))
        return file.read(most)


def follow(request: HttpRequest, job: Job, offset: int, worker: int = 0) -> HttpResponse:
    """Stream what is there from `offset` on, then what is written, until the job and its run have ended."""
    return followed_text(request, job, lambda at, most: read(job, at, most, worker), is_over(job), offset)


def followed_text(
    request: HttpRequest, row: Model, read: Callable[[int, int], bytes], over: Callable[[], bool], offset: int
) -> HttpResponse:
    """Stream the log of that job or application as text, or as events where the client accepts those."""
    if EVENTS not in request.headers.get("Accept", ""):
        return followed(request, row, Follower(read, over, offset))
    last = request.headers.get("Last-Event-ID", "")
    return followed(request, row, EventFollower(read, over, int(last) if OFFSET.fullmatch(last) else offset), EVENTS)


def followed(request: HttpRequest, row: Model, reader: Follower, media: str = TEXT) -> HttpResponse:
    """Stream from `reader`, the log of that job or application, for as long as the caller may read it.

    Where each response holds a thread (WSGI), nginx passes it to the ASGI server instead. Only Django decides whether
    a log is followed, since nginx parses the query differently.
    """
    if not isinstance(request, ASGIRequest):
        return HttpResponse(content_type=media, headers={"X-Accel-Redirect": ELSEWHERE})
    reader.slot = FOLLOWED_LOGS.take(credentials_of(request).slot_key)
    if reader.slot is None:
        raise Refused(FOLLOWED_LOGS.refusal(), field="follow")
    reader.may = access.access_check(request, row)
    return StreamingHttpResponse(_pieces(reader), content_type=media, headers={"X-Accel-Buffering": "no"})


async def _pieces(reader: Follower) -> AsyncIterator[bytes]:
    """Yield what is read. Holds no thread and no database connection between two reads."""

    def step() -> bytes:
        try:
            return reader.step()
        finally:
            connection.close()

    sent = time.monotonic()
    try:
        while not reader.done:
            data = await sync_to_async(step, thread_sensitive=False)()
            shown = data or (reader.nothing if time.monotonic() - sent >= QUIET_S else b"")
            if shown:
                sent = time.monotonic()
                yield shown
            if not data and not reader.done:
                await asyncio.sleep(LOOK_EVERY_S)
    finally:
        reader.slot.free()


class Follower:
    """Reads on by `read(offset, most bytes)`. `done` once nothing came after `over()` was true, after LONGEST_S,
    or when the reader's access has ended.
    """

    may: Callable[[], bool] = staticmethod(lambda: True)
    slot: Slot  # freed with the response
    nothing = b""  # sent while there is no more: a log as text has nothing that would not be a part of it

    def __init__(self, read: Callable[[int, int], bytes], over: Callable[[], bool], offset: int):
        self.read, self.ended, self.offset = read, over, offset
        self.begun = self.judged = time.monotonic()
        self.asked = 0.0
        self.over = self.done = False

    def step(self) -> bytes:
        now = time.monotonic()
        if now - self.judged >= JUDGE_EVERY_S:
            self.judged = now
            if not self.may():
                self.done = True
                return b""
        data = self.piece()
        if data:
            self.done = now - self.begun > LONGEST_S
        elif self.over or now - self.begun > LONGEST_S:
            self.done = True
        elif now - self.asked >= ASK_EVERY_S:
            self.asked = now
            self.over = self.ended()
        return data

    def piece(self) -> bytes:
        """Return what was written since the last piece."""
        data = self.read(self.offset, PIECE)
        self.offset += len(data)
        return data


class EventFollower(Follower):
    """Sends a log as server-sent events: pieces of its text as JSON strings, whose ids are the offsets after them. A
    comment says that nothing was written; the event `end` says that the run has ended.
    """

    nothing = b":\n\n"

    def __init__(self, read: Callable[[int, int], bytes], over: Callable[[], bool], offset: int):
        super().__init__(read, over, offset)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self) -> bytes:
        data = super().step()
        ended = self.done and self.over and not data
        text = self.decoder.decode(data, ended)
        half = len(self.decoder.getstate()[0])  # bytes of a character that is not written completely yet
        event = f"id: {self.offset - half}\ndata: {json.dumps(text, ensure_ascii=False)}\n\n" if text else ""
        return f"{event}event: end\ndata: {self.offset}\n\n".encode() if ended else event.encode()


def is_over(job: Job) -> Callable[[], bool]:
    """Return a function that returns whether the job and its run have ended."""
    return lambda: not Job.objects.filter(pk=job.pk).exclude(run_name="", ended__isnull=False).exists()


def tail(job: Job, limit: int) -> tuple[str, int, int, bool]:
    """Return (the end of the log as text, its first byte, the next byte to read, whether there is more before)."""
    return ending(lambda at, most: read(job, at, most), size(job), limit)


def ending(read: Callable[[int, int], bytes], whole: int, limit: int) -> tuple[str, int, int, bool]:
    """Return the same for any log of `whole` bytes that `read(offset, most)` reads."""
    start = max(0, whole - limit)
    data = read(start, limit)
    if start and b"\n" in data:
        cut = data.index(b"\n") + 1
        start, data = start + cut, data[cut:]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    half = len(decoder.getstate()[0])  # bytes of a character that is not written completely yet
    return readable(text), start, start + len(data) - half, start > 0


def readable(text: str) -> str:
    """Return a log as a terminal would show it: without colours, each line as last drawn."""
    lines = TERMINAL.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
