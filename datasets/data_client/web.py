"""HTTP with the platform: one kept connection for each thread, proxies of the environment, retries with back-off.

Used by service.py. Whatever goes wrong leaves as Failure with one line, whatever may pass is tried again.
"""

from __future__ import annotations

import base64
import errno
import http.client
import json
import random
import select
import socket
import ssl
import threading
import time
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from .errors import DAMAGED, LOGIN, REFUSED, UNREACHABLE, USAGE, Failure, Trouble

BLOCK = 1 << 20
ASK_FIRST = 1 << 20  # from this size on a body is sent only once the platform has said that it wants it
TIMEOUT_S = 120
LONG_S, SLOW = 900, {"PROPFIND", "DELETE"}  # the checksum of a large file, the removal of many files
PASSING = {408, 429, 500, 502, 503, 504}


class Response:
    """A whole answer: status, headers and body."""

    def __init__(self, response: http.client.HTTPResponse, body: bytes):
        self.status, self.headers, self.body = response.status, response.headers, body

    def json(self):
        try:
            return json.loads(self.body.decode("utf-8"))
        except ValueError:
            raise Failure(UNREACHABLE, "the answer is not the platform's; is --url right?")

    @property
    def msg(self) -> str:
        """What the platform says is wrong, in its own words."""
        try:
            return str(json.loads(self.body.decode("utf-8"))["msg"])
        except (ValueError, KeyError, TypeError):
            return f"HTTP {self.status}"


class Web:
    """Everything sent to one platform. `note(line)` is told of each retry."""

    def __init__(self, url: str, patience: float, note=lambda line: None):
        parts = urlsplit(url)
        try:
            self.port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise Failure(USAGE, f"--url: not a valid address: {url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise Failure(USAGE, f"--url: must be http://host:port or https://host:port, not {url}")
        self.url, self.scheme, self.host = url.rstrip("/"), parts.scheme, parts.hostname
        self.prefix = parts.path.rstrip("/")
        self.patience, self.note = patience, note
        self.headers: dict = {"User-Agent": "mlp-data-client"}
        self.local = threading.local()
        self.stopping = threading.Event()
        self.reached = False
        self.said = -100.0
        self.proxy = self._proxy()

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: dict | None = None, expect=()
    ) -> Response:
        """Sends, retries what may pass, and answers; raises Failure for a refusal not named in `expect`."""
        return self.patiently(lambda: self._once(method, path, body, headers or {}), expect)

    def send(self, method: str, path: str, size: int, blocks, headers: dict, expect=()) -> Response:
        """A body in blocks: `blocks()` starts it anew at each try."""
        return self.patiently(lambda: self._send(method, path, size, blocks, headers), expect)

    def patiently(self, attempt, expect=()) -> Response:
        """Tries until it works. Ends when, after the first failure, for `patience` seconds in all nothing moved.

        The first try does not count, however long it took, nor the time in which a later one sent its body: on a slow
        link one that breaks off has been at work for longer than anybody is patient.
        """
        idle, delay, tries = 0.0, 0.25, 0
        while True:
            self.local.moved = began = time.monotonic()
            if self.stopping.is_set():
                raise Failure(UNREACHABLE, "stopped")
            try:
                answer = attempt()
                if answer.status in PASSING and answer.status not in expect:
                    raise Trouble(answer.msg, _retry_after(answer.headers))
                self.reached = True
                self.judge(answer, expect)
                return answer
            except Trouble as trouble:
                tries += 1
                idle += time.monotonic() - self.local.moved if tries > 1 else 0.0
                if idle > self.patience:
                    raise Failure(UNREACHABLE, f"{trouble.line} (gave up after {tries} tries)")
                delay = 0.25 if self.local.moved > began else delay
                pause = min(max(trouble.wait, delay * random.uniform(0.5, 1.0)), max(0.1, self.patience - idle))
                self.say(trouble)
                self.stopping.wait(pause)
                idle, delay = idle + pause, min(delay * 2, 10.0)

    def say(self, trouble: Trouble) -> None:
        """Tells the user of a retry, once in five seconds: all threads have the same trouble."""
        now = time.monotonic()
        if now - self.said > 5:
            self.said = now
            self.note(f"{trouble.line}; trying again")

    def open(self, path: str, headers: dict) -> http.client.HTTPResponse:
        """A GET whose body the caller reads. Raises Trouble or Failure; a status from 400 on is judged here."""
        response = self._begin("GET", path, dict(headers))
        if response.status >= 400:
            answer = Response(response, self._read(response))
            if answer.status in PASSING:
                raise Trouble(answer.msg, _retry_after(answer.headers))
            if answer.status != 416:
                self.judge(answer, ())
        self.reached = True
        return response

    def read_block(self, response: http.client.HTTPResponse) -> bytes:
        """The next bytes of a body, b"" at its end. Raises Trouble when it breaks off."""
        try:
            block = response.read(BLOCK)
            if not block and response.length:
                raise http.client.IncompleteRead(b"", response.length)
            return block
        except (OSError, http.client.HTTPException) as problem:
            raise self.trouble(problem)

    def close(self) -> None:
        """Drops this thread's connection."""
        connection = getattr(self.local, "connection", None)
        self.local.connection = None
        if connection is not None:
            connection.close()

    def judge(self, answer: Response, expect) -> None:
        if answer.status < 400 or answer.status in expect:
            return
        if answer.status == 407:
            raise Failure(UNREACHABLE, "the proxy wants a name and password (http_proxy=http://user:password@…)")
        if answer.status == 401 or answer.msg.startswith(("token:", "not authenticated")):
            raise Failure(LOGIN, f"{answer.msg} (log in: data_client.pyz login)")
        if answer.msg.startswith("Repr-Digest: does not belong"):
            raise Failure(DAMAGED, answer.msg)
        raise Failure(REFUSED, answer.msg)

    # --- one try ------------------------------------------------------------------------------------------------
    def _once(self, method: str, path: str, body: bytes, headers: dict) -> Response:
        response = self._begin(method, path, headers, body)
        return Response(response, self._read(response))

    def _begin(self, method: str, path: str, headers: dict, body: bytes | None = None) -> http.client.HTTPResponse:
        """Sends and reads the answer's head. A kept connection that had died meanwhile is opened anew, once."""
        for fresh in (False, True):
            kept = getattr(self.local, "connection", None) is not None
            try:
                connection = self._connection()
                connection.sock.settimeout(LONG_S if method in SLOW else TIMEOUT_S)
                connection.request(method, self._target(path), body=body, headers=self._all(headers))
                return connection.getresponse()
            except (OSError, http.client.HTTPException) as problem:
                self.close()
                if not kept or fresh or isinstance(problem, socket.timeout):
                    raise self.trouble(problem)
        raise AssertionError

    def _send(self, method: str, path: str, size: int, blocks, headers: dict) -> Response:
        connection = None
        try:
            connection = self._connection()
            connection.sock.settimeout(TIMEOUT_S)
            connection.putrequest(method, self._target(path), skip_accept_encoding=True)
            ask = size >= ASK_FIRST and self.scheme == "http"
            for name, value in self._all(headers).items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(size))
            if ask:
                connection.putheader("Expect", "100-continue")
            connection.endheaders()
            if not ask or _wanted(connection.sock):
                try:
                    for block in blocks():
                        connection.send(block)
                        self.local.moved = time.monotonic()
                except (BrokenPipeError, ConnectionResetError):
                    pass  # refused in the middle: the answer says why, if it still comes through
            else:
                self.local.connection = None  # the body is still owed: this connection is done for
            response = connection.getresponse()
            answer = Response(response, self._read(response))
            if answer.status >= 400:
                self.close()
            return answer
        except (OSError, http.client.HTTPException) as problem:
            self.close()
            if connection is not None:
                connection.close()
            raise self.trouble(problem)
        except BaseException:
            self.close()
            raise

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as problem:
            self.close()
            raise self.trouble(problem)

    def trouble(self, problem: Exception) -> Exception:
        """One line for a failed connection: Trouble when it may pass, Failure when it cannot."""
        if isinstance(problem, ssl.SSLCertVerificationError):
            return Failure(UNREACHABLE, f"{self.url}: its certificate is not trusted: {problem.verify_message}")
        if isinstance(problem, socket.gaierror) and not self.reached:
            return Failure(UNREACHABLE, f"{self.url}: no such host")
        if isinstance(problem, http.client.InvalidURL):
            return Failure(USAGE, f"{self.url}: not a valid address")
        if isinstance(problem, ConnectionRefusedError) or getattr(problem, "errno", 0) == errno.ECONNREFUSED:
            return Trouble(f"cannot reach {self.url}: connection refused")
        if isinstance(problem, socket.timeout):
            return Trouble(f"cannot reach {self.url}: no answer in time")
        words = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        return Trouble(f"the connection to {self.url} broke: {words}")

    # --- connections ----------------------------------------------------------------------------------------------
    def _proxy(self):
        found = getproxies().get(self.scheme)
        if not found or proxy_bypass(self.host):
            return None
        parts = urlsplit(found if "//" in found else "http://" + found)
        if not parts.hostname:
            raise Failure(USAGE, f"{self.scheme}_proxy: not a valid address: {found}")
        login = {}
        if parts.username:
            pair = "{}:{}".format(unquote(parts.username), unquote(parts.password or ""))
            login = {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
        return parts.hostname, parts.port or 8080, login

    def _connection(self) -> http.client.HTTPConnection:
        connection = getattr(self.local, "connection", None)
        if connection is not None:
            return connection
        host, port, login = self.proxy or (self.host, self.port, {})
        if self.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, blocksize=BLOCK)
            if self.proxy:
                connection.set_tunnel(self.host, self.port, headers=login)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S, blocksize=BLOCK)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.local.connection = connection
        return connection

    def _target(self, path: str) -> str:
        if self.proxy and self.scheme == "http":
            return self.url + path
        return self.prefix + path

    def _all(self, headers: dict) -> dict:
        merged = dict(self.headers)
        if self.proxy and self.scheme == "http":
            merged.update(self.proxy[2])
        merged.update(headers)
        return merged


def _wanted(sock) -> bool:
    """Waits for "100 Continue". False: another answer came, so the body is not wanted. Silence counts as yes."""
    ready, _, _ = select.select([sock], [], [], 10.0)
    if not ready:
        return True
    head = sock.recv(13, socket.MSG_PEEK)
    return b" 100" in head


def _retry_after(headers) -> float:
    told = headers.get("Retry-After", "")
    return min(float(told), 30.0) if told.isdigit() else 0.0
