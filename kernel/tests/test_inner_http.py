"""HTTP between nginx and listeners of ours: no header of a caller's ends a connection, which nginx takes as a fault."""

from __future__ import annotations

import asyncio

import pytest
from django.http import HttpResponse

from kernel import inner_http


class Echo:
    """Answers each request with its body, and remembers its headers."""

    def __init__(self):
        self.metas: list[dict[str, str]] = []

    def take(self, connection: inner_http.Connection, path: str, meta: dict[str, str]) -> None:
        self.metas.append(meta)
        connection.write(inner_http.written(HttpResponse(connection.body)))


async def answered(echo: Echo, path: str, *headers: bytes) -> bytes:
    """Send a request with each of the headers on one connection, and return all answers."""
    listener = await inner_http.listen(echo, path)
    reader, writer = await asyncio.open_unix_connection(path)
    for number, header in enumerate(headers):
        writer.write(b"POST /v1/logs HTTP/1.1\r\nHost: a\r\n%b\r\nContent-Length: 2\r\n\r\n#%d" % (header, number))
    writer.write_eof()
    answers = await reader.read()
    writer.close()
    listener.close()
    return answers


@pytest.mark.parametrize(
    ("header", "name", "value"),
    [
        (b"User-Agent: a\x01b", "HTTP_USER_AGENT", "a\x01b"),
        (b"User-Agent: a\x7f", "HTTP_USER_AGENT", "a\x7f"),
        (b"X-Name: \xff\xfe", "HTTP_X_NAME", "\xff\xfe"),
        (b"Proxy-Connection: close", "HTTP_PROXY_CONNECTION", "close"),
    ],
)
def test_an_odd_header_ends_no_connection(tmp_path, header, name, value):
    echo = Echo()
    answers = asyncio.run(answered(echo, str(tmp_path / "s"), header, b"X-Other: 1"))
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.count(b"#0") == answers.count(b"#1") == 1
    assert [meta.get(name) for meta in echo.metas] == [value, None]


def test_an_answer_without_content_has_no_length():
    assert b"Content-Length" not in inner_http.written(HttpResponse(status=204))
    assert b"Content-Length: 0\r\n\r\n" in inner_http.written(HttpResponse(status=201))
