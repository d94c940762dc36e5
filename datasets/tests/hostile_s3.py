"""An S3 server that answers what no real one does: the first part of a key says what."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

CONTENT = b"0123456789"
OBJECT = {"ETag": '"tag"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
LIST = """<ListBucketResult><Name>kept</Name><Prefix>{0}</Prefix><IsTruncated>false</IsTruncated>
<Contents><Key>{0}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>0</Size></Contents><Contents>
<Key>{0}a</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"tag"</ETag><Size>10</Size></Contents>
</ListBucketResult>"""
REFUSAL = (
    b"<Error><Code>SignatureDoesNotMatch</Code><Message>It &lt;differs&gt;</Message>"
    b"<AWSAccessKeyId>THE-KEY</AWSAccessKeyId></Error>"
)


class Server(ThreadingHTTPServer):
    """`asked` are the headers of each request; while `silence` is not set, some are not answered."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, str]] = []
        self.silence = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_args) -> None:
        """Write nothing."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.asked.append({name.lower(): value for name, value in self.headers.items()})
        prefix = parse_qs(url.query).get("prefix", [""])[0]
        behaviour = (prefix or unquote(url.path).split("/", 2)[2]).split("/")[0]
        if prefix and behaviour == "refused":
            return self.answer(403, REFUSAL)
        if prefix and behaviour == "control":
            return self.answer(403, b"no\x00\x1b[31m")
        if prefix and behaviour == "silent-list":
            self.server.silence.wait()
        if prefix:
            text = LIST.format(prefix)
            text = text.replace('"tag"', '"t&#10;a"') if behaviour == "odd-tag" else text
            text = text.replace(">10<", f">{2**62}<") if behaviour == "huge" else text
            return self.answer(200, text.encode())
        return getattr(self, behaviour.replace("-", "_"))()

    do_HEAD = do_GET

    def answer(self, code: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body) if length is None else length)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def whole(self) -> None:
        self.answer(200, CONTENT, **OBJECT)

    def shorter(self) -> None:
        self.answer(200, CONTENT[:5], **OBJECT)

    def longer(self) -> None:
        self.answer(200, CONTENT * 2, **OBJECT)

    def ends(self) -> None:
        self.answer(200, CONTENT[:5], 10, **OBJECT)
        self.close_connection = True

    def fails(self) -> None:
        self.answer(500, b"")

    def silent(self) -> None:
        self.answer(200, CONTENT[:5], 10, **OBJECT)
        self.wfile.flush()
        self.server.silence.wait()


@contextlib.contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Yield the server while it runs."""
    with Server() as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.silence.set()
            server.shutdown()
            thread.join()
