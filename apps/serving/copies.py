"""Copies of requests with their answers, for an application's shadow (apps/shadows). No Django: part of the serving
process.

A copy is put into a queue of this process after the answer has been sent to its caller, and the platform fetches it
from there: nothing that becomes of the shadow is seen by a caller. What finds the queue full is dropped and counted, as
is a request or an answer too large to be kept whole. Copies are in memory only, since they are not masked.

The platform proves itself by a value that needs the secret of the run: the gateway sends the secret itself with each
caller's request, and no caller may read the requests of others.
"""

from __future__ import annotations

import base64
import hmac
import random
import time
from collections import deque
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from recorder import Entry, Exchange

HEADER, TAKE = b"x-app-copies", "/-copies"
MAX_COPIES, MAX_BYTES = 500, 16 << 20
MAX_TAKEN, MAX_TAKEN_BYTES = 32, 1 << 20  # at once: what is encoded holds up the requests of callers
MAX_HEADERS = 8 << 10
ABANDONED_S = 30.0  # after which copies that nobody fetches are forgotten
# Headers of a single connection, of the gateway, and those that are set again when the copy is sent.
LEFT_OUT = (
    "connection",
    "upgrade",
    "te",
    "trailer",
    "transfer-encoding",
    "keep-alive",
    "host",
    "content-length",
    "expect",
)


def token_of(secret: bytes) -> bytes:
    """Return what the platform sends to fetch copies; empty where the process has no secret."""
    return hmac.new(secret, b"copies", "sha256").hexdigest().encode() if secret else b""


class Copies:
    """The copies that the platform has not fetched yet."""

    def __init__(self, secret: bytes):
        self.token = token_of(secret)
        self.waiting: deque[tuple[int, dict, Entry]] = deque()
        self.bytes = self.dropped = self.unfit = 0
        self.fetched = time.monotonic()

    def is_asked(self, scope) -> bool:
        """Return whether the platform asks: for copies, or how this process answers one of another process."""
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        return bool(given and self.token) and hmac.compare_digest(given, self.token)

    def draws(self, share: float) -> bool:
        """Return whether a request is copied, and not only counted: copies are not kept for a platform that is away."""
        return share > 0 and random.random() < share

    def put(self, exchange: Exchange, entry: Entry) -> None:
        """Add a request that was answered, or count it as dropped or unfit."""
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in exchange.scope["headers"]
                   if not name.startswith(b"x-app-") and name.decode("latin-1") not in LEFT_OUT]  # fmt: skip
        if not entry.given.whole or sum(len(name) + len(value) for name, value in headers) > MAX_HEADERS:
            self.unfit += 1
            return
        if time.monotonic() - self.fetched > ABANDONED_S:
            self._forget()
        if len(self.waiting) >= MAX_COPIES or self.bytes + entry.size > MAX_BYTES:
            self.dropped += 1
            return
        query = exchange.scope.get("query_string", b"").decode("latin-1")
        request = {"path": exchange.scope["path"], "query": query, "headers": headers}
        self.waiting.append((entry.size, request, entry))
        self.bytes += entry.size

    def _forget(self) -> None:
        self.dropped += len(self.waiting)
        self.waiting.clear()
        self.bytes, self.fetched = 0, time.monotonic()

    def take(self) -> bytes:
        """Return lines of JSON: how many were dropped and unfit since the last time, and the oldest copies."""
        lines = [orjson.dumps({"dropped": self.dropped, "unfit": self.unfit})]
        self.dropped = self.unfit = taken = 0
        self.fetched = time.monotonic()
        while self.waiting and len(lines) <= MAX_TAKEN and (not taken or taken + self.waiting[0][0] <= MAX_TAKEN_BYTES):
            size, request, entry = self.waiting.popleft()
            self.bytes -= size
            taken += size
            body = base64.b64encode(entry.given.data).decode()
            lines.append(orjson.dumps({**request, "id": entry.head["id"], "body": body, "answer": said(entry)}))
        return b"\n".join([*lines, b""])


def said(entry: Entry) -> dict:
    """Return the answer of an entry as the platform reads it."""
    answer = entry.answer
    return {
        "status": entry.status,
        "ms": entry.head["ms"],
        "type": answer.type,
        "whole": entry.whole and answer.whole,
        "data": base64.b64encode(answer.data).decode(),
    }
