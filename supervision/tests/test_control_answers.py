"""What supervisord answers is not always whole: `up` then looks again, instead of ending with everything it has."""

from __future__ import annotations

import http.server
import socketserver
import threading

import pytest

from supervision import control

EMPTY = b"<params><param><value><array><data></data></array></value></param></params>"
WHOLE = b"<?xml version='1.0'?><methodResponse>" + EMPTY + b"</methodResponse>"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_arguments) -> None:
        """Log nothing: the address of who asks, which it names, is not there."""


@pytest.fixture
def supervisord():
    """Return a function that has a server at supervisord's socket answer with these bytes, and the client for it."""
    control.socket_path().parent.mkdir(parents=True, exist_ok=True)
    control.socket_path().unlink(missing_ok=True)
    with socketserver.UnixStreamServer(str(control.socket_path()), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def answering(body: bytes) -> control.Supervisord:
            server.body = body
            return control.Supervisord([])

        yield answering
        server.shutdown()
        thread.join()
    control.socket_path().unlink()


@pytest.mark.parametrize("body", [b"", WHOLE[:60], WHOLE[:-5], b"no XML at all"])
def test_an_answer_that_is_not_whole_is_none(supervisord, body):
    with pytest.raises(control.SupervisorGone):
        supervisord(body).pids()


def test_a_whole_answer_is_read(supervisord):
    assert supervisord(WHOLE).pids() == {}
