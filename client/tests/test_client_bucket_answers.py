"""Answers of a bucket's server and what the client does with them. The server is a stand-in that fails on request."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from client.mlp_client.bucket import Bucket, md5
from client.mlp_client.connection import Connection
from client.mlp_client.parts import Large
from client.mlp_client.transfer.errors import DAMAGED, REFUSED, Failure
from client.mlp_client.uploading import Sending


def error(code: str, message: str = "") -> str:
    return f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"


class Server(ThreadingHTTPServer):
    """Gives the `answers` in their order: (status, body), with `headers`; a body of None does not end."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, str | None]] = []
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, str, dict]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_args) -> None:
        """Write nothing."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, dict(self.headers)))
        status, body = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        if body is not None:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client has closed the connection
            while True:
                self.wfile.write(b"%x\r\n%b\r\n" % (1 << 20, b"a" * (1 << 20)))

    do_POST = do_GET = do_PUT


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def bucket(server) -> Bucket:
    platform = Connection("http://127.0.0.1:9", patience=20)
    platform.headers["Authorization"] = "Bearer of the platform"
    return Bucket(f"http://127.0.0.1:{server.server_port}/kept/a", platform)


@pytest.fixture
def put(server, bucket):
    """Send a file; each address is another one."""

    def send():
        address = f"http://127.0.0.1:{server.server_port}/kept/a?"
        return bucket.ask("PUT", lambda fresh: f"{address}fresh={fresh}", body=b"1")

    return send


@pytest.mark.parametrize(
    "passing",
    [
        (503, error("SlowDown", "Please reduce your request rate.")),
        (500, ""),
        (400, error("RequestTimeout", "Your socket connection to the server was not read from")),
        (200, error("InternalError", "We encountered an internal error. Please try again.")),
        (409, error("OperationAborted")),
    ],
)
def test_what_passes_is_tried_again(server, put, passing):
    server.answers = [passing, (200, "")]
    assert put().status == 200
    assert len(server.asked) == 2
    assert all("Authorization" not in headers for _method, _path, headers in server.asked)


@pytest.mark.parametrize("status", [400, 403])
def test_an_address_that_is_refused_is_asked_for_once_more(server, put, status):
    server.answers = [(status, error("AccessDenied", "Request has expired")), (200, "")]
    assert put().status == 200
    assert [path for _method, path, _headers in server.asked] == ["/kept/a?fresh=False", "/kept/a?fresh=True"]
    server.answers = [(403, error("AccessDenied", "a &lt; b"))] * 2
    with pytest.raises(Failure, match="AccessDenied: a < b") as failed:
        put()
    assert failed.value.code == REFUSED


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((301, error("PermanentRedirect", "use another endpoint")), r"use another endpoint \(is the region"),
        ((400, error("EntityTooLarge", "too large")), "EntityTooLarge: too large"),
        ((507, error("QuotaExceeded")), "QuotaExceeded"),
        ((404, error("NoSuchBucket", "The bucket does not exist")), "NoSuchBucket: The bucket does not exist"),
        ((418, "<html>"), "HTTP 418"),
    ],
)
def test_what_the_server_refuses_is_said_in_its_words(server, put, answer, said):
    server.answers = [answer]
    with pytest.raises(Failure, match=said):
        put()


def sending(bucket: Bucket) -> Sending:
    work = Sending(
        SimpleNamespace(web=bucket.platform),
        "cats",
        [],
        SimpleNamespace(say=lambda line: None, add=lambda size: None),
        False,
    )
    work.bucket = bucket
    return work


def test_what_arrives_damaged_is_sent_three_times(server, bucket):
    server.answers = [(400, error("BadDigest"))] * 3
    address = f"http://127.0.0.1:{server.server_port}/kept/a"
    with pytest.raises(Failure, match="checksum mismatch") as failed:
        sending(bucket).deliver(
            SimpleNamespace(path="a"), lambda fresh: address, md5(b"1"), 1, lambda: [b"1"], {}
        )  # fmt: skip
    assert (failed.value.code, server.answers) == (DAMAGED, [])
    assert server.asked[0][2]["Content-MD5"] == "xMpCOKC5I4INzFCab3WEmw=="


@pytest.mark.parametrize("answer", [(403, error("AccessDenied")), (501, error("NotImplemented")), (200, "no XML")])
def test_a_server_that_lists_no_unfinished_uploads_gets_a_new_one(server, bucket, answer):
    begun = (
        "<InitiateMultipartUploadResult xmlns='http://s3'><UploadId>a&amp;b</UploadId></InitiateMultipartUploadResult>"
    )
    server.answers = [answer] * (2 if answer[0] == 403 else 1) + [(200, begun)]
    large = Large(sending(bucket), SimpleNamespace(path="a", size=1), {"parts": 2, "part": 1, "type": "", "key": "a"})
    address = f"http://127.0.0.1:{server.server_port}/kept"
    large.begin(lambda fresh: address, lambda fresh: address)
    assert large.upload == "a&b"


BOMB = (
    "<!DOCTYPE a [<!ENTITY a 'lol'><!ENTITY b '&a;&a;'>]><a><Upload><Key>a</Key><UploadId>&b;</UploadId></Upload></a>"
)


@pytest.mark.parametrize(
    "listed", [BOMB, "<?xml version='1.0' encoding='x'?><a/>", "<?xml version='1.0' encoding='utf-32'?>"]
)
def test_a_list_of_unfinished_uploads_that_is_odd_is_none(server, bucket, listed):
    server.answers = [(200, listed), (200, "<UploadId>new</UploadId>")]
    large = Large(sending(bucket), SimpleNamespace(path="a", size=1), {"parts": 2, "part": 1, "type": "", "key": "a"})
    address = f"http://127.0.0.1:{server.server_port}/kept"
    large.begin(lambda fresh: address, lambda fresh: address)
    assert large.upload == "new"


def test_parts_whose_numbers_are_none_are_sent_again(server, bucket):
    rows = [("1", "8"), ("\u00b2", "8"), ("3", "\u00b2"), ("4", "9" * 5000), ("-5", "8")]
    listed = "".join(f"<Part><PartNumber>{n}</PartNumber><Size>{size}</Size></Part>" for n, size in rows)
    listed = listed.replace("\u00b2", "&#178;")
    server.answers = [(200, f"<ListPartsResult>{listed}</ListPartsResult>")]
    large = Large(sending(bucket), SimpleNamespace(path="a", size=1), {"parts": 5, "part": 8, "type": "", "key": "a"})
    large._look(f"http://127.0.0.1:{server.server_port}/kept")
    assert large.have == {1: ("", 8)}


def test_an_answer_that_does_not_end_is_given_up(server, put):
    server.answers = [(200, None)]
    with pytest.raises(Failure, match="the answer is too large"):
        put()
    server.answers = [(200, "")]
    assert put().status == 200, "on another connection"


def test_an_error_of_many_words_is_said_in_a_few(server, put):
    server.answers = [(400, "<Error>" + "<Code>" * 1_000_000)]
    with pytest.raises(Failure, match="HTTP 400"):
        put()
    server.answers = [(400, error("Odd", "a" * 50_000))]
    with pytest.raises(Failure, match="Odd: a") as failed:
        put()
    assert len(failed.value.line) < 600


def test_when_to_try_again_is_a_number_or_nothing(server, put):
    server.headers = {"Retry-After": "\u00b2"}
    server.answers = [(503, ""), (200, "")]
    assert put().status == 200


def test_of_the_unfinished_uploads_the_newest_of_the_key_goes_on(server, bucket):
    listed = [("ab", "other", 9), ("a", "old", 1), ("a", "new", 2)]
    rows = "".join(
        f"<Upload><Key>{key}</Key><UploadId>{name}</UploadId><Initiated>2026-01-0{day}</Initiated></Upload>"
        for key, name, day in listed
    )
    server.answers = [(200, f"<ListMultipartUploadsResult xmlns='http://s3'>{rows}</ListMultipartUploadsResult>")]
    large = Large(sending(bucket), SimpleNamespace(path="a", size=1), {"parts": 2, "part": 1, "type": "", "key": "a"})
    large.begin(lambda fresh: f"http://127.0.0.1:{server.server_port}/kept", None)
    assert large.upload == "new"
