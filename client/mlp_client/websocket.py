"""A websocket of the platform (RFC 6455): messages both ways over one connection, which proxies of the environment, TLS
and the token of `connection` open. One thread uses it, with select: two at once are not safe with TLS.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import io
import os
import select
import socket
import ssl
import struct
import threading
from types import SimpleNamespace
from urllib.parse import urlsplit

from .connection import Connection
from .texts import language, tr
from .transfer.errors import UNREACHABLE, Failure, Trouble
from .transfer.web import TEMPORARY, Response

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MAX_HEAD, MAX_MESSAGE = 1 << 16, 1 << 24  # bytes
BLOCK = 1 << 16
FULL = 1 << 20  # bytes that wait to be sent; more input is not read meanwhile
CLOSING_S = 5.0
EACH_S = 0.5  # between two calls of `each`
NORMAL, NO_STATUS = 1000, 1005


class Link:
    """An open websocket. `code` and `reason` are those of its end, which `receive` has seen."""

    def __init__(self, sock: socket.socket, rest: bytes):
        self.sock, self.received, self.waiting = sock, bytearray(rest), bytearray()
        self.parts: list = []
        self.kind = BINARY
        self.ended, self.code, self.reason = False, NO_STATUS, ""
        sock.setblocking(False)

    def send(self, data: bytes, kind: int = BINARY) -> None:
        """Send a message, or as much of it as the connection takes; `flush` sends what is left. Raises OSError."""
        mask = os.urandom(4)
        size = len(data)
        head = bytes([0x80 | kind])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += struct.pack("!BH", 0x80 | 126, size)
        else:
            head += struct.pack("!BQ", 0x80 | 127, size)
        self.waiting += head + mask + _masked(data, mask)
        self.flush()

    def flush(self) -> None:
        """Send what the connection takes now. Raises OSError."""
        while self.waiting:
            try:
                sent = self.sock.send(self.waiting[:BLOCK])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            del self.waiting[:sent]

    def receive(self) -> list:
        """Return the messages that have arrived, (kind, bytes) each; sets `ended` at the end. Raises OSError."""
        while not self.ended:
            try:
                block = self.sock.recv(BLOCK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except ssl.SSLEOFError:
                block = b""
            if not block:
                self.ended = True
            self.received += block
            if len(self.received) >= FULL:
                break
        return list(self._messages())

    def _messages(self):
        while True:
            frame = self._frame()
            if frame is None:
                return
            last, kind, data = frame
            if kind == PING:
                self.send(data, PONG)
            elif kind == CLOSE:
                self.ended = True
                if len(data) >= 2:
                    self.code, self.reason = struct.unpack("!H", data[:2])[0], data[2:].decode("utf-8", "replace")
                self._answer_close(data[:2])
                return
            elif kind in (TEXT, BINARY, CONTINUED):
                self.kind = kind or self.kind
                self.parts.append(data)
                if sum(map(len, self.parts)) > MAX_MESSAGE:
                    raise OSError(tr("a message is too long"))
                if last:
                    whole, self.parts = b"".join(self.parts), []
                    yield self.kind, whole

    def _frame(self):
        """Return (whether it is a message's last, kind, bytes) of the next complete frame, else None."""
        have = self.received
        if len(have) < 2:
            return None
        size, start = have[1] & 0x7F, 2
        if size == 126:
            size, start = (struct.unpack("!H", have[2:4])[0] if len(have) >= 4 else 1 << 16), 4
        elif size == 127:
            size, start = (struct.unpack("!Q", have[2:10])[0] if len(have) >= 10 else 0), 10
        if size > MAX_MESSAGE:
            raise OSError(tr("a message is too long"))
        if len(have) < start + size:
            return None
        frame = bool(have[0] & 0x80), have[0] & 0x0F, bytes(have[start : start + size])
        del have[: start + size]
        return frame

    def _answer_close(self, code: bytes) -> None:
        with contextlib.suppress(OSError):  # it is gone already
            self.send(code, CLOSE)

    def close(self, code: int = NORMAL) -> None:
        """Send the rest and the end, wait a moment for the other side's, and close the connection."""
        try:
            if not self.ended:
                self.send(struct.pack("!H", code), CLOSE)
            self.sock.settimeout(CLOSING_S)
            if self.waiting:
                self.sock.sendall(bytes(self.waiting))
            while not self.ended and self.sock.recv(BLOCK):
                pass
        except OSError:
            pass
        self.sock.close()


def connect(web: Connection, path: str, protocol: str = "") -> Link:
    """Open a websocket at a path of the platform. Raises Failure, Trouble."""
    key = base64.b64encode(os.urandom(16))
    headers = {
        "Host": urlsplit(web.url).netloc.rpartition("@")[2],
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key.decode(),
        "Accept-Language": language(),
        **({"Sec-WebSocket-Protocol": protocol} if protocol else {}),
    }
    web.close()
    try:
        connection = web.connection()
        lines = [f"GET {web.target(path)} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in web.all_headers(headers).items()]
        connection.sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        head, rest = _head(connection.sock)
        status = int(head.split(b" ", 2)[1])
        fields = http.client.parse_headers(io.BytesIO(head.partition(b"\r\n")[2]))
        if status != 101:
            size = min(int(fields.get("Content-Length") or 0), MAX_HEAD)
            while len(rest) < size and (block := connection.sock.recv(BLOCK)):
                rest += block
    except (OSError, http.client.HTTPException, ValueError, IndexError) as problem:
        web.close()
        raise web.trouble(problem)
    web.local.connection = None  # it is no HTTP connection any more
    if status != 101:
        connection.close()
        _refuse(web, status, fields, rest)
    right = base64.b64encode(hashlib.sha1(key + ACCEPT).digest()).decode()
    if fields.get("Sec-WebSocket-Accept") != right:
        connection.close()
        raise Failure(UNREACHABLE, tr("{url}: no websocket there; does a proxy in between pass them on?", url=web.url))
    return Link(connection.sock, rest)


def relay(link: Link, read, write, *, stay: str = "", each=None) -> None:
    """Send what `read()` returns, b"" at its end, as binary messages, and `write(data, kind)` those that arrive, until
    one side ends. With `stay` the end of the input is that message, and only the other side ends. `each()` is called
    again and again. Raises OSError when the connection is lost.
    """
    inner, outer = socket.socketpair()  # `read` blocks, and on Windows cannot be waited for with select
    threading.Thread(target=_feed, args=(read, outer), daemon=True).start()
    over = ended = False
    while not (link.ended or (over and not link.waiting)):
        wanted = [link.sock] if ended or len(link.waiting) > FULL else [link.sock, inner]
        pause = 0 if _pending(link) else EACH_S if each else None
        ready, _, _ = select.select(wanted, [link.sock] if link.waiting else [], [], pause)
        if each:
            each()
        link.flush()
        if inner in ready:
            block = inner.recv(BLOCK)
            ended = not block
            over = ended and not stay
            if block:
                link.send(block)
            elif stay:
                link.send(stay.encode(), TEXT)
        if link.sock in ready or _pending(link):
            for kind, data in link.receive():
                write(data, kind)
    inner.close()


def _pending(link: Link) -> bool:
    """Return whether TLS has bytes that select does not see."""
    return isinstance(link.sock, ssl.SSLSocket) and link.sock.pending() > 0


def _feed(read, outer: socket.socket) -> None:
    try:
        while block := read():
            outer.sendall(block)
    except (OSError, ValueError):
        pass  # the other end is closed, or the input is
    outer.close()


def _head(sock: socket.socket) -> tuple:
    """Return the status line with the headers, and what was read beyond them. Raises OSError, ValueError."""
    data = b""
    while b"\r\n\r\n" not in data:
        block = sock.recv(BLOCK)
        if not block or len(data) > MAX_HEAD:
            raise http.client.RemoteDisconnected("the connection was closed without an answer")
        data += block
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _refuse(web: Connection, status: int, fields, body: bytes) -> None:
    answer = Response(SimpleNamespace(status=status, headers=fields), body)
    if status in TEMPORARY:
        raise Trouble(answer.msg)
    web.judge(answer, ())
    raise Failure(UNREACHABLE, tr("{url}: no websocket there; does a proxy in between pass them on?", url=web.url))


def _masked(data: bytes, mask: bytes) -> bytes:
    """Return the bytes as a client has to send them, each exclusive-or one of the mask's."""
    if not data:
        return b""
    times = mask * (len(data) // 4 + 1)
    whole = int.from_bytes(data, "big") ^ int.from_bytes(times[: len(data)], "big")
    return whole.to_bytes(len(data), "big")
