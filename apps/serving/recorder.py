"""Records of requests and their answers: a share of them, masked and cut, appended to files of this run.

No Django: part of the serving process. The gateway sends with each request how it is recorded (apps/records/plan.py):
{"share", "bytes", "mask"}, and nothing where the owner has not turned recording on. With `shadow`, the share of the
requests that are copied for a shadow, what passes is also put into a queue of copies (copies.py).

A request only puts what it has into a queue; a thread masks, cuts and writes it, one line of JSON for each record. What
finds the queue full, or too many bytes that the platform has not collected yet (apps/records/collecting.py), is dropped
and counted: recording never delays or fails a request.

The files are {path}-{number}.ndjson. The next one is begun when one has SEGMENT bytes; the platform removes those that
it has stored. A line {"dropped": 3} says how many records were dropped before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import threading
import time
import uuid
from collections import deque
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import orjson
from copies import TAKE, Copies, said
from record_bodies import Body, Captured, Events, shown

PLAN, ID, KEY, ARM = b"x-app-record", b"x-request-id", b"x-app-key", b"x-app-arm"
WRITE = "/-records"
SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}")
MAX_QUEUED, MAX_QUEUED_BYTES = 2000, 32 << 20
SEGMENT, MAX_SEGMENTS = 4 << 20, 8
UNKNOWN = (404, 405)  # no request to the model
NOT_RECORDED = ("/v2/repository/index",)
LONGEST_PATH = 200
EVERY_S = 2.0  # after which dropped records are written down while no others come


class Plan(NamedTuple):
    """How requests are recorded: the share of them, the bytes kept of each body, the fields and paths to mask; and the
    share that is copied.
    """

    share: float
    most: int
    mask: tuple[str, ...]
    shadow: float = 0.0


class Entry(NamedTuple):
    """What is known of an answered request. `whole`: the answer was sent to its end."""

    plan: Plan
    head: dict
    given: Body
    answer: Body
    status: int
    whole: bool

    @property
    def size(self) -> int:
        return len(self.given.data) + len(self.answer.data)


@lru_cache(maxsize=16)
def plan_of(header: bytes) -> Plan | None:
    """Return what the header says; None for anything else."""
    try:
        found = orjson.loads(header)
        share, most, mask = found["share"], found["bytes"], found["mask"]
        shadow = float(found.get("shadow", 0))
        return Plan(float(share), int(most), tuple(str(each) for each in mask), shadow)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class Recorder:
    """An ASGI application in front of another one, whose answers it records."""

    def __init__(self, application, path: Path, secret: bytes = b""):
        self.application, self.spool, self.copies = application, Spool(path), Copies(secret)

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return await self.application(scope, receive, send)
        if self.copies.is_asked(scope):
            return await self._for_shadow(scope, receive, send)
        if scope["path"] == WRITE:
            return await self._write(send)
        plan = self._plan(scope)
        spool = self.spool if plan is not None and random.random() < plan.share else None
        copies = self.copies if plan is not None and self.copies.draws(plan.shadow) else None
        if plan is None or (spool is None and copies is None):
            return await self.application(scope, receive, send)
        exchange = Exchange(scope, receive, send, plan, spool, copies)
        try:
            await self.application(scope, exchange.receive, exchange.send)
        finally:
            if exchange.status and not exchange.done:  # the caller has left before the end of the answer
                exchange.note(whole=False)

    async def _for_shadow(self, scope, receive, send) -> None:
        """Answer the platform: with the copies that it has not fetched, or with what this process answers to a request
        that another process was sent, and how long that took, in place of the answer itself.
        """
        if scope["path"] == TAKE:
            return await _send_whole(send, self.copies.take())
        exchange = Exchange(scope, receive, _nowhere, Plan(0, 0, ()), None, None)
        await self.application(scope, exchange.receive, exchange.send)
        await _send_whole(send, orjson.dumps(said(exchange.entry(exchange.done))))

    async def _write(self, send) -> None:
        """Answer once what is queued is written: the platform looks for a record that its caller knows already."""
        await asyncio.to_thread(self.spool.write)
        await _send_whole(send, b"")

    def _plan(self, scope) -> Plan | None:
        if scope["method"] != "POST" or scope["path"].rstrip("/") in NOT_RECORDED:
            return None
        header = next((value for name, value in scope["headers"] if name == PLAN), b"")
        return plan_of(header) if header else None


async def _nowhere(message: dict) -> None:
    """Drop what would be sent to a caller."""


async def _send_whole(send, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Exchange:
    """One request and its answer, as they pass: to a spool as a record, to a shadow as a copy."""

    def __init__(self, scope, receive, send, plan: Plan, spool: Spool | None, copies: Copies | None):
        self.scope, self._receive, self._send, self.plan = scope, receive, send, plan
        self.spool, self.copies = spool, copies
        self.headers = dict(scope["headers"])
        self.began, self.at = time.monotonic(), time.time()
        self.given, self.answer = Captured(), Captured()
        self.status, self.type, self.done = 0, "", False

    async def receive(self) -> dict:
        message = await self._receive()
        if message["type"] == "http.request":
            self.given.take(message.get("body", b""))
        return message

    async def send(self, message: dict) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.type = _text(dict(message["headers"]).get(b"content-type", b""))
            self.answer = Events() if self.type.startswith("text/event-stream") else self.answer
        elif message["type"] == "http.response.body":
            self.answer.take(message.get("body", b""))
            if not message.get("more_body") and not self.done:
                self.done = True
                entry = self.note(whole=True)  # before the caller has it: feedback may come at once
                await self._send(message)
                self._copy(entry)  # after it: a copy never comes before the answer
                return
        await self._send(message)

    def note(self, whole: bool) -> Entry | None:
        """Put what has passed until now into the queue of records, and return it. Never fails the request."""
        try:
            entry = self.entry(whole)
            if self.spool is not None:
                self.spool.put(entry)
            return entry
        except Exception:  # of an answer that nobody has thought of
            if self.spool is not None:
                self.spool.count_dropped(1)
        return None

    def _copy(self, entry: Entry | None) -> None:
        """Put an answered request into the queue of copies. Never fails the request."""
        if self.copies is None or (entry is not None and entry.status in UNKNOWN):
            return
        try:
            self.copies.put(self, entry)
        except Exception:
            self.copies.dropped += 1

    def entry(self, whole: bool) -> Entry:
        """Return what has passed until now."""
        given_id = _text(self.headers.get(ID, b""))
        head = {
            "id": given_id if SANE_ID.fullmatch(given_id) else uuid.uuid4().hex,
            "at": self.at,
            "ms": round(1000 * (time.monotonic() - self.began), 3),
            "path": self.scope["path"][:LONGEST_PATH],
            "key": _text(self.headers.get(KEY, b"")),
            "arm": _text(self.headers.get(ARM, b"")),
        }
        kind, coding = self.headers.get(b"content-type", b""), self.headers.get(b"content-encoding", b"")
        given, answer = self.given.body(_text(kind), _text(coding)), self.answer.body(self.type)
        return Entry(self.plan, head, given, answer, self.status, whole)


def line_of(entry: Entry) -> bytes | None:
    """Return the line of a record; None for a request that was not to the model."""
    if entry.status in UNKNOWN:
        return None
    failed = entry.status >= 400
    body = {
        **entry.head,
        "status": entry.status,
        "whole": entry.whole,
        "input": shown(entry.given, entry.plan.mask, entry.plan.most),
        # the reason of a refusal may repeat what is to be masked
        "output": shown(entry.answer, entry.plan.mask, entry.plan.most, says_why=failed),
    }
    return orjson.dumps(body) + b"\n"


class Spool:
    """The queue of records, and the thread that writes them; thread-safe."""

    def __init__(self, path: Path):
        self.path, self.waiting, self.bytes, self.dropped = path, deque(), 0, 0
        self.lock, self.writing, self.wake = threading.Lock(), threading.Lock(), threading.Event()
        self.segments: list[int] = []  # those that the platform has not removed, the last is written
        self.thread: threading.Thread | None = None

    def put(self, entry: Entry) -> None:
        """Add a record to the queue, or count it as dropped. Never waits for the disk."""
        with self.lock:
            if len(self.waiting) >= MAX_QUEUED or self.bytes + entry.size > MAX_QUEUED_BYTES:
                self.dropped += 1
                return
            self.waiting.append(entry)
            self.bytes += entry.size
            if self.thread is None:
                with contextlib.suppress(RuntimeError):  # the model has all threads that the run may have
                    thread = threading.Thread(target=self._run, name="records", daemon=True)
                    thread.start()
                    self.thread = thread
        self.wake.set()

    def count_dropped(self, count: int) -> None:
        with self.lock:
            self.dropped += count

    def _run(self) -> None:
        while True:
            self.wake.wait(EVERY_S)
            self.wake.clear()
            with contextlib.suppress(Exception):  # the next ones are written again
                self.write()

    def write(self) -> None:
        """Write what is queued. Called by the thread, and at the end of the process."""
        with self.writing:
            while True:
                with self.lock:
                    entries = [self.waiting.popleft() for _ in range(min(len(self.waiting), 50))]
                    self.bytes -= sum(entry.size for entry in entries)
                    dropped = self.dropped
                if not entries and not dropped:
                    return
                lines = [line for line in map(_line, entries) if line is not None]
                note = [orjson.dumps({"dropped": dropped}) + b"\n"] if dropped else []
                good = self._append(b"".join([*note, *lines]))
                with self.lock:
                    self.dropped += -dropped if good else len(lines)
                if not entries or not good:
                    return

    def _append(self, data: bytes) -> bool:
        """Append to the last file, or to the next one; return whether all of it was written."""
        if not data:
            return True
        try:
            self._look()
            if len(self.segments) > MAX_SEGMENTS:
                return False
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._file(self.segments[-1]), flags, 0o644)
        except OSError:
            return False
        try:
            if os.write(file, data) == len(data):
                return True
        except OSError:
            pass  # a full disk must not stop the application
        finally:
            os.close(file)
        self.segments.append(self.segments[-1] + 1)  # what was torn stays at the end of its file
        return False

    def _look(self) -> None:
        """Forget the files that the platform has removed, and begin the next one where the last is full."""
        if not self.segments:
            there = [int(text) for text in map(self._number, self.path.parent.iterdir()) if text]
            self.segments = [max(there, default=0) + 1]
        *others, last = self.segments
        self.segments = [number for number in others if self._file(number).exists()] + [last]
        with contextlib.suppress(OSError):
            if self._file(last).stat().st_size >= SEGMENT:
                self.segments.append(last + 1)

    def _number(self, file: Path) -> str:
        match = re.fullmatch(rf"{re.escape(self.path.name)}-(\d{{1,9}})\.ndjson", file.name)
        return match[1] if match else ""

    def _file(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}-{number}.ndjson")


def _line(entry: Entry) -> bytes | None:
    try:
        return line_of(entry)
    except Exception:  # of a body that nobody has thought of: the record goes on without its bodies
        none = {"type": "", "size": 0, "kept": "none", "text": ""}
        return orjson.dumps({**entry.head, "status": entry.status, "whole": entry.whole, "input": none, "output": none}
                            ) + b"\n"  # fmt: skip


def _text(value: bytes) -> str:
    return value.decode("latin-1")[:200]
