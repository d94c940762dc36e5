"""An S3 server that keeps its objects in memory, and the unfinished uploads in parts. The first part of a key says what
it does wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ITEM = (
    "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;{}&quot;</ETag>"
    "<Size>{}</Size></Contents>"
)
LIST = "<ListBucketResult><Name>kept</Name><Prefix/><IsTruncated>false</IsTruncated>{}</ListBucketResult>"
STARTED = "<InitiateMultipartUploadResult><UploadId>{}</UploadId></InitiateMultipartUploadResult>"
DONE = "<CompleteMultipartUploadResult><ETag>&quot;{}&quot;</ETag></CompleteMultipartUploadResult>"
REFUSED = "<Error><Code>AccessDenied</Code><Message>No writes here</Message></Error>"


class Server(ThreadingHTTPServer):
    """`objects` are (content, ETag) by key, `uploads` the parts of those that are neither complete nor aborted."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.puts: list[str] = []
        self.kinds: dict[str, str] = {}
        self.headers: set[str] = set()  # of what was written
        self.silence = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_args) -> None:
        """Write nothing."""

    def answer(self, code: int, body: str = "", **headers: str) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body.encode()))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    def asked(self) -> tuple[str, dict[str, str], bytes]:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return unquote(url.path).removeprefix("/kept").lstrip("/"), query, body

    def do_GET(self) -> None:
        key, query, _body = self.asked()
        if key:
            self.answer(404)
            return
        below = {name: each for name, each in sorted(self.server.objects.items()) if name.startswith(query["prefix"])}
        self.answer(200, LIST.format("".join(ITEM.format(escape(k), tag, len(c)) for k, (c, tag) in below.items())))

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        key, query, body = self.asked()
        self.server.puts.append(key)
        self.server.headers |= {name.lower() for name in self.headers}
        tag, does = hashlib.md5(body).hexdigest(), key.split("/")[0]
        if does == "refused":
            self.answer(403, REFUSED)
        elif does == "silent":
            self.server.silence.wait()
        elif does == "lost":  # it says that it has the object
            self.answer(200, ETag=f'"{tag}"')
        elif "uploadId" in query:
            if does == "second" and query["partNumber"] == "2":
                self.answer(403, REFUSED)
                return
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self.answer(200, ETag=f'"{tag}"')
        else:
            tag = "of-a-key" if does == "kms" else tag
            self.server.objects[key] = (body, tag)
            self.server.kinds[key] = self.headers.get("Content-Type", "")
            self.answer(200, ETag=f'"{tag}"')

    def do_POST(self) -> None:
        key, query, body = self.asked()
        self.server.headers |= {name.lower() for name in self.headers}
        if "uploads" in query:
            name = f"upload{len(self.server.uploads)}"
            self.server.uploads[name] = {}
            self.answer(200, STARTED.format(name))
            return
        parts = self.server.uploads.pop(query["uploadId"])
        named = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        digests = b"".join(hashlib.md5(parts[number]).digest() for number in named)
        tag = f"{hashlib.md5(digests).hexdigest()}-{len(named)}"
        self.server.objects[key] = (b"".join(parts[number] for number in named), tag)
        self.answer(200, DONE.format(tag))

    def do_DELETE(self) -> None:
        _key, query, _body = self.asked()
        self.server.uploads.pop(query["uploadId"], None)
        self.answer(204)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Yield the server while it runs."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.silence.set()
            server.shutdown()
            thread.join()
