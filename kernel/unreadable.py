"""What gunicorn answers where it cannot read a request: JSON. Its own page in HTML is no form of any of our endpoints,
and it has no setting for it.

nginx lets headers pass that gunicorn refuses, such as one with a control character. What the request asks for is not
known then, so the answer has the fields of all forms: of REST, of log shippers and of MLflow.
"""

from __future__ import annotations

import json
import socket
from http import HTTPStatus

from gunicorn import util

page = util.write_error


def install() -> None:
    """Have gunicorn answer by `write_error`, in this process and its forks."""
    util.write_error = write_error


def write_error(sock: socket.socket, status: int, reason: str, problem: str) -> None:
    """Send the answer to a request that gunicorn could not read. A fault of the server stays a page: nginx replaces it.
    Raises OSError.
    """
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        page(sock, status, reason, problem)
        return
    words = f"the request is not valid HTTP: {problem}"
    form = {"msg": words, "code": status, "message": words, "error_code": "INVALID_PARAMETER_VALUE"}
    body = json.dumps(form).encode()
    head = f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    util.write_nonblock(sock, f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)
