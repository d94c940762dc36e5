"""Requests to untrusted servers: limited in time and size, whatever they answer."""

from __future__ import annotations

import socket
import threading

import pytest

from kernel import outbound
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

SHORT_S = 0.5
DRIP_S = 0.05
RECORD = b"\x16\x03\x03\x40\x00"  # TLS: here come 16384 bytes of a handshake


@pytest.fixture
def stranger():
    """Run a server that sends `first` to its client, then `drip` repeatedly, until it is stopped."""
    ended, threads = threading.Event(), []
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(first: bytes, drip: bytes) -> None:
        link, _ = listener.accept()
        with link:
            try:
                link.sendall(first)
                for _ in range(int(LIMIT_S / DRIP_S)):  # far longer than anything that has a limit waits
                    if ended.wait(DRIP_S) or not drip:
                        return
                    link.sendall(drip)
            except OSError:
                return

    def begin(first: bytes, drip: bytes = b"") -> tuple[str, int]:
        threads.append(threading.Thread(target=answer, args=(first, drip)))
        threads[-1].start()
        return listener.getsockname()

    yield begin
    ended.set()
    listener.close()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("first", "drip", "tls"),
    few(
        [
            (b"HTTP/1.1 200", b" ", False),
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n", False),
            (b"HTTP/1.1 200 OK\r\n", b"X", False),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x", False),
            (RECORD, b"\0", True),
        ],
        2,
    ),
    ids=["status", "continue", "header", "body", "handshake"],
)
def test_a_dripping_response_is_cut_off_in_time(stranger, first, drip, tls):
    name = "example.org" if tls else ""
    with pytest.raises(TimeoutError, match=r"within 0.5 s"):
        outbound.exchange(stranger(first, drip), "POST", "/", b"{}", limit_s=SHORT_S, most=10_000, tls_name=name)


def test_an_endless_response_is_cut_at_the_given_size(stranger):
    address = stranger(b"HTTP/1.1 201 Made\r\n\r\n", b"x" * 50_000)
    assert outbound.exchange(address, "GET", "/", limit_s=LIMIT_S, most=100_000) == (201, b"x" * 100_000)
    address = stranger(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", b"x")
    assert outbound.exchange(address, "GET", "/", limit_s=LIMIT_S, most=0) == (200, b"")


def test_redirects_are_not_followed(stranger):
    address = stranger(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    assert outbound.exchange(address, "POST", "/", b"", limit_s=LIMIT_S, most=10)[0] == 302
