"""HTTP with the platform: a persistent connection for each thread, proxies of the environment, retries with back-off.

Used by service.py. Temporary errors are retried; every other one is raised as Failure with one line.
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
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, getproxies, proxy_bypass, urlopen

from .errors import DAMAGED, LOGIN, REFUSED, UNREACHABLE, USAGE, Failure, Trouble

BLOCK = 1 << 20
ASK_FIRST = 1 << 20  # bytes; larger bodies are sent with "Expect: 100-continue"
TIMEOUT_S = 120
LONG_S, SLOW = 900, {"PROPFIND", "DELETE"}  # seconds, for the checksum of a large file and the deletion of many files
TEMPORARY = {408, 429, 500, 502, 503, 504}


class Response:
    """A complete response: status, headers and body."""

    def __init__(self, response: http.client.HTTPResponse, body: bytes):
        self.status, self.headers, self.body = response.status, response.headers, body

    def json(self):
        try:
            return json.loads(self.body.decode("utf-8"))
        except ValueError:
            raise Failure(UNREACHABLE, "unexpected response, not from the platform; check --url")

    @property
    def msg(self) -> str:
        """Return the platform's error message."""
        try:
            return str(json.loads(self.body.decode("utf-8"))["msg"])
        except (ValueError, KeyError, TypeError):
            return f"HTTP {self.status}"


class Web:
    """The connections to one platform. `note(line)` is called when a request is retried."""

    def __init__(self, url: str, patience: float, insists: bool = False, note=lambda line: None):
        parts = urlsplit(url)
        try:
            self.port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise Failure(USAGE, f"--url: invalid address: {url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise Failure(USAGE, f"--url: must be http://host:port or https://host:port, not {url}")
        self.url, self.scheme, self.host = url.rstrip("/"), parts.scheme, parts.hostname
        self.prefix = parts.path.rstrip("/")
        self.patience, self.insists, self.note = patience, insists, note
        self.headers: dict = {"User-Agent": "mlp-data-client"}
        self.local = threading.local()
        self.stopping = threading.Event()
        self.reached = False
        self.said = -100.0
        self.context: ssl.SSLContext | None = None  # None: the authorities that Python trusts
        self.proxy = self._proxy()

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: dict | None = None, expect=()
    ) -> Response:
        """Send a request, with retries, and return the response. Raises Failure for an error status not in `expect`."""
        return self.patiently(lambda: self._once(method, path, body, headers or {}), expect)

    def send(self, method: str, path: str, size: int, blocks, headers: dict, expect=()) -> Response:
        """Send a body in blocks, with retries: `blocks()` starts from its beginning at each try. Raises Failure."""
        return self.patiently(lambda: self._send(method, path, size, blocks, headers), expect)

    def patiently(self, attempt, expect=()) -> Response:
        """Retry until it works; give up when, after the first failure, nothing was sent for `patience` seconds in all.

        Neither the first try counts nor the time in which a later one sent its body: on a slow link a single try may
        take longer than `patience`. Raises Failure.
        """
        idle, delay, tries = 0.0, 0.25, 0
        while True:
            self.local.moved = began = time.monotonic()
            if self.stopping.is_set():
                raise Failure(UNREACHABLE, "stopped")
            try:
                answer = attempt()
                if answer.status in TEMPORARY and answer.status not in expect:
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
        """Tell the user about a retry, at most every five seconds: all threads have the same problem."""
        now = time.monotonic()
        if now - self.said > 5:
            self.said = now
            self.note(f"{trouble.line}; retrying")

    def open(self, path: str, headers: dict) -> http.client.HTTPResponse:
        """Send a GET whose body the caller reads. Raises Trouble or Failure, also for an error status but 412 and
        416. A file that is in a bucket comes from there.
        """
        response = self._begin("GET", path, dict(headers))
        if response.status == 302:
            self._read(response)
            response = self.elsewhere(response.headers["Location"], headers)
        if response.status >= 400:
            answer = Response(response, self._read(response))
            if answer.status in TEMPORARY:
                raise Trouble(answer.msg, _retry_after(answer.headers))
            if answer.status not in (412, 416):
                self.judge(answer, ())
        self.reached = True
        return response

    def elsewhere(self, url: str, headers: dict) -> http.client.HTTPResponse:
        """Send a GET to a file in a bucket: without the token, on a connection of its own. Raises Trouble, Failure."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise Failure(UNREACHABLE, f"{self.url}: redirects to {url}")
        try:
            return urlopen(Request(url, headers=dict(headers)), timeout=TIMEOUT_S, context=self.context)
        except HTTPError as answer:
            if answer.code in (412, 416):
                return answer.fp
            problem = f"{urlsplit(url).netloc}: HTTP {answer.code}"
            if answer.code in TEMPORARY or answer.code == 403:  # an address is good for a few minutes
                raise Trouble(problem, _retry_after(answer.headers))
            raise Failure(REFUSED, problem)
        except URLError as problem:
            reason = problem.reason
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise Failure(UNREACHABLE, f"{urlsplit(url).netloc}: {reason.verify_message}")
            raise Trouble(f"cannot connect to {urlsplit(url).netloc}: {reason}")
        except (OSError, http.client.HTTPException) as problem:
            raise self.trouble(problem)

    def read_block(self, response: http.client.HTTPResponse) -> bytes:
        """Return the next bytes of a body, b"" at its end. Raises Trouble when it is interrupted."""
        try:
            block = response.read(BLOCK)
            if not block and response.length:
                raise http.client.IncompleteRead(b"", response.length)
            return block
        except (OSError, http.client.HTTPException) as problem:
            raise self.trouble(problem)

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self.local, "connection", None)
        self.local.connection = None
        if connection is not None:
            connection.close()

    def judge(self, answer: Response, expect) -> None:
        """Raise Failure for a response with an error status not in `expect`."""
        if answer.status < 400 or answer.status in expect:
            return
        if answer.status == 407:
            raise Failure(UNREACHABLE, "the proxy requires authentication (http_proxy=http://user:password@…)")
        if answer.status == 401 or answer.msg.startswith(("token:", "not authenticated")):
            raise Failure(LOGIN, f"{answer.msg} (run 'data_client.pyz login')")
        if answer.msg.startswith("Repr-Digest: does not belong"):
            raise Failure(DAMAGED, answer.msg)
        raise Failure(REFUSED, answer.msg)

    # --- one try ------------------------------------------------------------------------------------------------
    def _once(self, method: str, path: str, body: bytes, headers: dict) -> Response:
        response = self._begin(method, path, headers, body)
        return Response(response, self._read(response))

    def _begin(self, method: str, path: str, headers: dict, body: bytes | None = None) -> http.client.HTTPResponse:
        """Send, and read the response's headers. A persistent connection that was closed is reopened, once."""
        for fresh in (False, True):
            kept = getattr(self.local, "connection", None) is not None
            try:
                connection = self.connection()
                connection.sock.settimeout(LONG_S if method in SLOW else TIMEOUT_S)
                connection.request(method, self.target(path), body=body, headers=self.all_headers(headers))
                return connection.getresponse()
            except (OSError, http.client.HTTPException) as problem:
                self.close()
                if not kept or fresh or isinstance(problem, socket.timeout):
                    raise self.trouble(problem)
        raise AssertionError

    def _send(self, method: str, path: str, size: int, blocks, headers: dict) -> Response:
        connection = None
        try:
            connection = self.connection()
            connection.sock.settimeout(TIMEOUT_S)
            connection.putrequest(method, self.target(path), skip_accept_encoding=True)
            ask = size >= ASK_FIRST and self.scheme == "http"
            for name, value in self.all_headers(headers).items():
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
                    pass  # refused meanwhile: the response says why, if it can still be read
            else:
                self.local.connection = None  # its body was never sent, so this connection cannot be used again
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
        """Return Trouble for a temporary connection error, Failure for a permanent one."""
        if isinstance(problem, ssl.SSLCertVerificationError):
            return Failure(UNREACHABLE, f"{self.url}: certificate verification failed: {problem.verify_message}")
        if isinstance(problem, socket.gaierror) and not self.reached:
            return Failure(UNREACHABLE, f"{self.url}: host not found")
        if isinstance(problem, http.client.InvalidURL):
            return Failure(USAGE, f"{self.url}: invalid address")
        if isinstance(problem, ConnectionRefusedError) or getattr(problem, "errno", 0) == errno.ECONNREFUSED:
            refused = f"cannot connect to {self.url}: connection refused"
            return Trouble(refused) if self.reached or self.insists else Failure(UNREACHABLE, refused)
        if isinstance(problem, socket.timeout):
            return Trouble(f"cannot connect to {self.url}: timed out")
        reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        return Trouble(f"connection to {self.url} lost: {reason}")

    # --- connections ----------------------------------------------------------------------------------------------
    def _proxy(self):
        proxy = getproxies().get(self.scheme)
        if not proxy or proxy_bypass(self.host):
            return None
        parts = urlsplit(proxy if "//" in proxy else "http://" + proxy)
        if not parts.hostname:
            raise Failure(USAGE, f"{self.scheme}_proxy: invalid address: {proxy}")
        login = {}
        if parts.username:
            pair = "{}:{}".format(unquote(parts.username), unquote(parts.password or ""))
            login = {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
        return parts.hostname, parts.port or 8080, login

    def connection(self) -> http.client.HTTPConnection:
        """Return this thread's connection, open. Raises OSError, HTTPException."""
        connection = getattr(self.local, "connection", None)
        if connection is not None and connection.sock is not None:  # closed after an answer that said so
            return connection
        host, port, login = self.proxy or (self.host, self.port, {})
        if self.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT_S, blocksize=BLOCK, context=self.context
            )
            if self.proxy:
                connection.set_tunnel(self.host, self.port, headers=login)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S, blocksize=BLOCK)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.local.connection = connection
        return connection

    def target(self, path: str) -> str:
        """Return what a request names for a path of the platform."""
        if self.proxy and self.scheme == "http":
            return self.url + path
        return self.prefix + path

    def all_headers(self, headers: dict) -> dict:
        """Return these headers with those of every request."""
        merged = dict(self.headers)
        if self.proxy and self.scheme == "http":
            merged.update(self.proxy[2])
        merged.update(headers)
        return merged


def _wanted(sock) -> bool:
    """Wait for "100 Continue"; return whether to send the body. No response within 10 seconds counts as yes."""
    ready, _, _ = select.select([sock], [], [], 10.0)
    if not ready:
        return True
    head = sock.recv(13, socket.MSG_PEEK)
    return b" 100" in head


def _retry_after(headers) -> float:
    seconds = headers.get("Retry-After", "")
    return min(float(seconds), 30.0) if seconds.isdecimal() else 0.0
