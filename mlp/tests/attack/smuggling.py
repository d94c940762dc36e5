"""Requests that two servers in a row may read differently, and headers that only the platform's own servers send."""

from __future__ import annotations

import socket
from contextlib import closing, suppress

from mlp.tests.patience import LIMIT_S

INNER = b"GET /internal/data/verb HTTP/1.1\r\nHost: x\r\nX-Data-Uri: /data/victim/.home/kept.txt\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
LENGTH, CHUNKS = b"Content-Length: %d\r\n", b"Transfer-Encoding: chunked\r\n"
SIZE = LENGTH % len(SMUGGLED)


def post(headers: bytes, body: bytes) -> bytes:
    return b"POST /api/v1/users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers + b"\r\n" + body


AMBIGUOUS = {
    "length and chunks": post(LENGTH % (5 + len(SMUGGLED)) + CHUNKS, b"0\r\n\r\n" + SMUGGLED),
    "chunks and length": post(CHUNKS + LENGTH % 4, b"5c\r\n" + SMUGGLED + b"\r\n0\r\n\r\n"),
    "two lengths": post(LENGTH % 0 + SIZE, SMUGGLED),
    "a list of lengths": post(b"Content-Length: 0, %d\r\n" % len(SMUGGLED), SMUGGLED),
    "a signed length": post(b"Content-Length: +%d\r\n" % len(SMUGGLED), SMUGGLED),
    "a length in hexadecimal": post(b"Content-Length: 0x%x\r\n" % len(SMUGGLED), SMUGGLED),
    "a space before the colon": post(b"Content-Length : %d\r\n" % len(SMUGGLED), SMUGGLED),
    "a folded length": post(b"X-A: b\r\n Content-Length: 0\r\n" + SIZE, SMUGGLED),
    "bare line feeds": post(SIZE, SMUGGLED).replace(b"\r\n", b"\n"),
    "a bare carriage return": post(b"X-A: b\rTransfer-Encoding: chunked\r\n" + SIZE, b"0\r\n\r\n" + SMUGGLED),
    "a coding with a tab": post(b"Transfer-Encoding:\tchunked\r\n" + LENGTH % 5, b"0\r\n\r\n" + SMUGGLED),
    "two codings": post(b"Transfer-Encoding: identity\r\n" + CHUNKS, b"0\r\n\r\n" + SMUGGLED),
    "a coding with a parameter": post(b"Transfer-Encoding: chunked;q=1\r\n" + SIZE, b"0\r\n\r\n" + SMUGGLED),
    "a coding with an underscore": post(b"Transfer_Encoding: chunked\r\n" + SIZE, SMUGGLED),
    "a chunk's extension": post(CHUNKS, b"0;\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n\r\n" + SMUGGLED),
    "a huge chunk": post(CHUNKS, b"1" + b"0" * 16 + b"\r\n" + SMUGGLED),
    "a trailer": post(CHUNKS + b"Trailer: Content-Length\r\n", b"0\r\n" + SIZE + b"\r\n" + SMUGGLED),
    "an old version": post(SIZE, SMUGGLED).replace(b"HTTP/1.1", b"HTTP/1.0", 1) + SMUGGLED,
    "a request line with two spaces": b"GET /a HTTP/1.1\r\nX: GET  /smuggled HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED,
    "a line end in the address": b"GET /a%0d%0a%0d%0aGET%20/smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
    "a null character": b"GET /a\x00b HTTP/1.1\r\nHost: x\r\n\r\n",
    "an upgrade to HTTP/2": b"GET /index HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n" + SMUGGLED,
    "a websocket that is none": b"GET /ws/live HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 777\r\n\r\n" + INNER,
}  # fmt: skip

ADDRESSES = [
    "/internal/data/verb", "/%69nternal/data/verb", "//internal/data/verb", "/x/../internal/data/verb",
    "/./internal/data/may", "/internal%2fdata/verb", "/internal/apps/route", "/INTERNAL/data/verb",
    "/internal;/data/verb", "/internal/data/verb/", "/-data/files/victim/.home/kept.txt",
    "/%2ddata/files/victim/.home/kept.txt", "/-data/archive/victim/.home", "/-data/verb", "/-data/may", "/-data/put",
    "/-websocket", "/-followed", "/-unreadable", "/-app", "/data/victim/.home/kept.txt",
    "/data/attacker/../victim/.home/kept.txt", "/data/attacker/%2e%2e/victim/.home/kept.txt",
    "/data/attacker/..%2fvictim/.home/kept.txt", "/static/../secret-key", "/static/%2e%2e/%2e%2e/secret-key",
    "/static/..%2f..%2fsecret-key", "/static//etc/passwd", "/static/%00", "/.git/config", "/nginx.conf",
]  # fmt: skip
HEADERS = {
    "X-Internal-Key": "x", "X-Data-Uri": "/data/victim/.home/kept.txt",
    "X-Accel-Redirect": "/-data/files/victim/.home/kept.txt", "X-Original-URL": "/internal/data/verb",
    "X-Rewrite-URL": "/internal/data/verb", "X-HTTP-Method-Override": "DELETE", "X-Forwarded-For": "127.0.0.1",
    "X-Real-IP": "127.0.0.1", "X-App-User": "victim", "X-App-Name": "x", "X-App-Secret": "x",
    "X-Sendfile-Type": "X-Sendfile", "X_Internal_Key": "x", "Remote-User": "victim", "X-Forwarded-User": "victim",
    "Connection": "close, X-Internal-Key, X-Real-IP, X-Forwarded-For",
}  # fmt: skip
LAST = b"GET /healthz/nginx HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
PATIENCE_S = 0.5  # for a server that waits for the rest of what it takes for a body


def answers(port: int, request: bytes, patience_s: float = 30) -> bytes:
    """Send the bytes over one connection and return what comes back until it is closed."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)) as link:
        received = b""
        with suppress(OSError):
            link.sendall(request)
            link.settimeout(patience_s)
            while piece := link.recv(65536):
                received += piece
        return received
