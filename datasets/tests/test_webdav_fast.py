"""The data service's internal addresses, answered directly, and its records of uploads in flight."""

from __future__ import annotations

import io
import socket

import pytest

from datasets.data_urls import DIRECT
from datasets.webdav import gate, inflight, spool, unfinished, verbs
from kernel import storage
from kernel.dispatch import Dispatcher


def ask(path: str, method: str = "POST", **headers) -> tuple[str, bytes]:
    """Return the dispatcher's status and body; `(through)` where Django would answer."""
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "x", "SERVER_PORT": "80",
        "wsgi.input": io.BytesIO(), "wsgi.url_scheme": "http", "wsgi.errors": io.StringIO(), "HTTP_HOST": "x",
        **{f"HTTP_{name.upper()}": value for name, value in headers.items()},
    }  # fmt: skip
    seen = []
    through = Dispatcher(lambda environ, start: [b"(through)"], DIRECT)
    body = through(environ, lambda status, headers: seen.append(status))
    return (seen or [""])[0], b"".join(body)


def test_other_addresses_reach_django():
    assert ask("/internal/data/storage") == ("", b"(through)")
    assert ask("/api/v1/auth") == ("", b"(through)")


@pytest.mark.parametrize("path", ["/internal/data/may", "/internal/data/verb"])
def test_the_internal_key_is_required(path, db):
    for headers in ({}, {"x_internal_key": "guess"}, {"x_internal_key": "\xff"}):
        assert ask(path, **headers)[0] in {"404 Not Found", "403 Forbidden"}
        assert b"no such address" in ask(path, **headers)[1]


def test_the_views_answer_as_they_do_under_django(transactional_db):
    key = {"x_internal_key": gate.internal_key()}
    assert ask("/internal/data/verb", "GET", x_data_uri="/data/alice/x", **key)[0] == "401 Unauthorized"
    assert ask("/internal/data/verb", "OPTIONS", **key) == ("200 OK", b"")
    assert ask("/internal/data/verb", "BREW", **key)[0] == "405 Method Not Allowed"


def test_an_exception_is_a_fault_without_details(monkeypatch, transactional_db):
    monkeypatch.setattr(verbs, "authenticate", lambda authorization: 1 / 0)
    status, body = ask("/internal/data/verb", "GET", x_internal_key=gate.internal_key())
    assert status == "503 Service Unavailable"
    assert b"ZeroDivision" not in body


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_an_upload_is_in_flight_while_its_connection_is_open(db, family):
    with socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        server, far = listener.accept()
        upload = f"{far[0]}:{far[1]}>{listener.getsockname()[1]}"
        inflight.begin(upload, ["alice/one"], "one/x", 100_000)
        inflight.begin("127.0.0.1:1", ["alice/two"], "two/x", 100_000)  # its process has been killed
        others = inflight.begin("127.0.0.1:2", ["alice/one"], "one/y", 1)
        assert (others.at("alice/one"), others.at("alice/one", "one/x"), others.at("alice/two")) == (100_000, 0, 0)
        inflight.end(upload)
        assert (others.at("alice/one"), others.coming()) == (0, 0)  # it is stored
        inflight.begin(upload, ["alice/one"], "one/x", 100_000)
        inflight.keep_alive()
        assert inflight.broker().client.hkeys(inflight.KEY) == [upload.encode()]
        server.close()
        client.close()
    inflight.keep_alive()
    assert inflight.broker().client.hlen(inflight.KEY) == 0


def of_one_port(gateway: socket.socket, other: socket.socket) -> tuple[socket.socket, socket.socket, socket.socket]:
    """Return the gateway's end of a connection, its client's, and another connection of the same client's port.

    Any process of the machine may have got that port for a connection of its own; then another port is tried.
    """
    for _attempt in range(100):
        first, second = socket.create_connection(gateway.getsockname()), socket.socket()
        upload, _far = gateway.accept()
        for server in (first, second):
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            second.bind(first.getsockname())
        except OSError:
            for server in (first, second, upload):
                server.close()
        else:
            second.connect(other.getsockname())
            return upload, first, second
    raise AssertionError("each port is in use by another process")


def test_another_connection_of_the_same_client_port_is_not_the_upload(db):
    """Clients use a port for connections to several servers at the same time, and so do this machine's own parts."""
    with socket.create_server(("127.0.0.1", 0)) as gateway, socket.create_server(("127.0.0.1", 0)) as other:
        upload, first, second = of_one_port(gateway, other)
        far = first.getsockname()
        connection = f"{far[0]}:{far[1]}>{gateway.getsockname()[1]}"
        inflight.begin(connection, ["alice/one"], "one/x", 100_000)
        inflight.keep_alive()
        assert inflight.broker().client.hlen(inflight.KEY) == 1
        upload.close()
        first.close()
        inflight.keep_alive()
        assert inflight.broker().client.hlen(inflight.KEY) == 0
        second.close()


def test_without_a_connection_list_uploads_count_as_in_flight_for_a_limited_time(db, monkeypatch):
    monkeypatch.setattr(inflight, "TABLES", ())
    inflight.begin("10.0.0.1:1", ["alice/one"], "one/x", 100_000)
    inflight.keep_alive()
    assert inflight.broker().client.hlen(inflight.KEY) == 1
    monkeypatch.setattr(inflight, "BLIND_S", -1)
    inflight.keep_alive()
    assert inflight.broker().client.hlen(inflight.KEY) == 0


def test_the_sweep_removes_trash_at_once_and_bodies_after_a_while():
    folder = storage.spool_dir()
    (folder / "trash-1" / "x").mkdir(parents=True)
    (folder / "0000000001").touch()
    assert spool.sweep(0) == 1
    assert [path.name for path in folder.iterdir()] == ["0000000001"]


def test_a_platform_that_is_stopped_keeps_unfinished_files_only():
    folder = storage.spool_dir()
    for place in ("copy-1/x", f"{unfinished.FOLDER}/alice/.home"):
        (folder / place).mkdir(parents=True)
    (folder / "0000000001").touch()
    spool.clear_all()
    assert [path.name for path in folder.iterdir()] == [unfinished.FOLDER]
