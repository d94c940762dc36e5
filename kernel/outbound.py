"""One HTTP request to a server of unknown quality. Called by accounts.delivery and apps.

A socket's time-out starts again with each byte, so a server that answers a byte at a time could hold the caller's
thread for ever. Here one deadline covers the whole exchange, and the connection is closed when it is reached.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time

from . import sockets


def exchange(
    address: sockets.Address,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    limit_s: float,
    most: int,
    tls_name: str = "",
) -> tuple[int, bytes]:
    """Return the status and at most `most` bytes of the answer, without following redirections.

    With `tls_name` it uses HTTPS, and the server must prove that it has this name. Raises TimeoutError when it takes
    longer than `limit_s` seconds, OSError or HTTPException for any other failure.
    """
    begun, over = time.monotonic(), threading.Event()
    connection = sockets.HttpConnection(address, limit_s)
    connection.auto_open = 0  # to this address only
    connection.sock = link = sockets.connect(address, limit_s)

    def cut() -> None:
        over.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(link, socket.SHUT_RDWR)  # below TLS, whose handshake may not be finished

    timer = threading.Timer(max(0.0, begun + limit_s - time.monotonic()), cut)
    try:
        if tls_name:
            context = ssl.create_default_context()
            link = context.wrap_socket(link, server_hostname=tls_name, do_handshake_on_connect=False)
            connection.sock = link
        timer.start()
        if tls_name:
            link.do_handshake()
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        data = response.read(most) if most else b""
    except (OSError, http.client.HTTPException) as problem:
        # The socket's own time-out, of the same length, may come before the timer's thread on a busy machine.
        if over.is_set() or isinstance(problem, TimeoutError):
            raise TimeoutError(f"no answer within {limit_s:g} s")
        raise
    finally:
        timer.cancel()
        connection.close()
    if over.is_set():
        raise TimeoutError(f"no whole answer within {limit_s:g} s")
    return response.status, data
