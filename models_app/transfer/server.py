"""HTTP to an MLflow server elsewhere: calls in MLflow's form, downloads and uploads of files.

Uses the standard library alone. The login and the certificates are those of MLflow's own client, by the same
environment variables. What passes by itself is tried again: a server that restarts does not end an import.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlencode, urlsplit

API = "api/2.0/mlflow/"
API_3 = "api/3.0/mlflow/"
PROXY = "api/2.0/mlflow-artifacts/artifacts"
LIMIT_S = 120.0  # without a byte
MAX_ANSWER = 512 << 20  # bytes of an answer in JSON
PIECE = 1 << 20
TRIES = 7
PAUSE_S = 0.5  # after the first failure; twice as long after each further one
LONGEST_PAUSE_S = 60.0
PASSES = (408, 429, 500, 502, 503, 504)  # as MLflow's client has them


class ServerError(Exception):
    """What the server refuses, or how it fails. `status` is 0 where it does not answer."""

    def __init__(self, message: str, status: int = 0, code: str = ""):
        self.status, self.code = status, code
        super().__init__(message)


class Away(ServerError):
    """The server does not answer, or not to us: nothing else can be asked of it."""


class NoRoom(Away):
    """Nothing more can be stored here, so there is nothing to ask for."""


class Server:
    """An MLflow server. May be used by several threads: each has a connection of its own."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ):
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Away(f"{url}: must be the http:// or https:// address of an MLflow server")
        try:
            self.host, self.port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise Away(f"{url}: the port must be a number") from None
        self.path = parts.path.strip("/")
        self.tls = _tls(environment) if parts.scheme == "https" else None
        shown = f"[{self.host}]" if ":" in self.host else self.host
        usual = parts.port in (None, 443 if self.tls else 80)
        self.url = f"{parts.scheme}://{shown}{'' if usual else f':{self.port}'}/{self.path}".rstrip("/")
        self.headers = {"User-Agent": "mlp-transfer", **_login(environment, parts.username, parts.password)}
        self.own = threading.local()

    # --- calls -------------------------------------------------------------------------------------------------------
    def get(self, route: str, **query: Any) -> dict:
        """Return the answer of a call that reads. Raises ServerError."""
        given = {key: value for key, value in query.items() if value not in (None, "")}
        return self._json("GET", f"{API}{route}?{urlencode(given, doseq=True)}", None)

    def send(self, method: str, route: str, body: dict) -> dict:
        """Return the answer of a call with a body. Raises ServerError."""
        return self._json(method, API + route, json.dumps(body, allow_nan=False).encode())

    def post(self, route: str, **body: Any) -> dict:
        """Return the answer of a call with a body by POST. Raises ServerError."""
        return self.send("POST", route, body)

    def pages(self, ask: Callable[..., dict], field: str) -> Iterator[dict]:
        """Yield the objects of all pages. `ask` is called with the token of each page."""
        token = ""
        while True:
            answer = ask(page_token=token)
            rows = answer.get(field) or []
            if not isinstance(rows, list):
                raise ServerError(f"the answer's {field} is not a list")
            yield from (row for row in rows if isinstance(row, dict))
            before, token = token, answer.get("next_page_token") or ""
            if not token or token == before:
                return

    def ask_3(self, method: str, route: str, **fields: Any) -> dict:
        """Return the answer of a call of MLflow 3 that reads, by GET or POST. Raises ServerError."""
        if method == "GET":
            return self._json("GET", f"{API_3}{route}?{urlencode(fields, doseq=True)}", None)
        return self._json(method, API_3 + route, json.dumps(fields, allow_nan=False).encode())

    # --- files -------------------------------------------------------------------------------------------------------
    def proxied(self, path: str, **query: Any) -> dict:
        """Return the answer about a folder of the server's artifact store. Raises ServerError."""
        return self._json("GET", f"{PROXY}?{urlencode({'path': path, **query})}", None)

    def proxied_file(self, path: str) -> str:
        """Return the address of a file of the server's artifact store."""
        return f"{PROXY}/{quote(path)}"

    def download(self, address: str, take: Callable[[BinaryIO, int | None], Any]) -> Any:
        """Call `take` with the body of a file and its length, if it is known; return what that returns.

        A download that breaks off is begun again. Raises ServerError; what `take` raises passes.
        """
        return self._tried(lambda: self._download(address, take))

    def _download(self, address: str, take: Callable[[BinaryIO, int | None], Any]) -> Any:
        response = self._exchange("GET", address, None)
        _check(response, response.read(MAX_ANSWER) if response.status != 200 else b"")
        length = response.getheader("Content-Length")
        return take(response, int(length) if length and length.isdigit() else None)

    def upload(self, address: str, opened: Callable[[], BinaryIO], size: int) -> None:
        """Send a file with PUT. Raises ServerError."""

        def put() -> None:
            with opened() as file:
                response = self._exchange("PUT", address, file, {"Content-Length": str(size)})
                _check(response, response.read(MAX_ANSWER))

        self._tried(put)

    # --- the exchange ------------------------------------------------------------------------------------------------
    def _json(self, method: str, address: str, body: bytes | None) -> dict:
        def exchange() -> dict:
            response = self._exchange(method, address, body, {"Content-Type": "application/json"} if body else {})
            data = response.read(MAX_ANSWER + 1)
            _check(response, data)
            try:
                answer = json.loads(data) if data.strip() else {}
            except (ValueError, RecursionError):
                answer = None
            if not isinstance(answer, dict) or len(data) > MAX_ANSWER:
                raise ServerError(f"{self.url} does not answer as an MLflow server does", response.status, "NOT_MLFLOW")
            return answer

        return self._tried(exchange)

    def _tried(self, exchange: Callable[[], Any]) -> Any:
        pause = PAUSE_S
        for left in range(TRIES - 1, -1, -1):
            wait = pause
            try:
                return exchange()
            except ServerError as problem:
                if left == 0 or problem.status not in PASSES or (problem.status == 500 and left < TRIES - 2):
                    raise
                wait = max(wait, min(getattr(problem, "after_s", 0.0), LONGEST_PAUSE_S))
            except ssl.SSLCertVerificationError as problem:
                raise Away(f"{self.url}: {problem.verify_message or problem}") from None
            except (OSError, http.client.HTTPException) as problem:
                self._close()
                if left == 0:
                    raise Away(f"{self.url} does not answer: {problem or type(problem).__name__}") from None
            time.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _exchange(self, method: str, address: str, body, headers: dict | None = None) -> http.client.HTTPResponse:
        """Send a request on this thread's connection, which is opened again where the server has closed it."""
        link = getattr(self.own, "link", None)
        target = "/" + "/".join(filter(None, (self.path, address)))
        for fresh in (link is None, True):
            if fresh:
                link = self._connect()
            try:
                link.request(method, target, body=body, headers={**self.headers, **(headers or {})})
                return link.getresponse()
            except (ConnectionError, http.client.RemoteDisconnected, http.client.ResponseNotReady,
                    http.client.CannotSendRequest):  # fmt: skip
                self._close()
                if fresh or not isinstance(body, bytes | None):
                    raise
        raise AssertionError

    def _connect(self) -> http.client.HTTPConnection:
        if self.tls is None:
            link = http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)
        else:
            link = http.client.HTTPSConnection(self.host, self.port, timeout=LIMIT_S, context=self.tls)
        link.connect()
        link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.own.link = link
        return link

    def _close(self) -> None:
        link = getattr(self.own, "link", None)
        if link is not None:
            link.close()
            self.own.link = None


def _check(response: http.client.HTTPResponse, data: bytes) -> None:
    """Raise ServerError for an answer that is none of success."""
    if 200 <= response.status < 300:
        return
    try:
        answer = json.loads(data)
        message, code = str(answer["message"]), str(answer.get("error_code", ""))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        message, code = f"HTTP {response.status} {response.reason}", ""
    if response.status in (301, 302, 303, 307, 308):
        raise Away(f"the server redirects to {response.getheader('Location', '')[:500]}: give that address")
    if response.status == 401:
        raise Away(
            f"the server asks for a login: {message[:500]}; set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD", 401,
        )  # fmt: skip
    problem = ServerError(message[:1000], response.status, code)
    after = response.getheader("Retry-After", "")
    problem.after_s = float(after) if after.isdigit() else 0.0
    raise problem


def _login(environment: Mapping[str, str], username: str | None, password: str | None) -> dict[str, str]:
    username, password = unquote(username or ""), unquote(password or "")
    username = username or environment.get("MLFLOW_TRACKING_USERNAME", "")
    password = password or environment.get("MLFLOW_TRACKING_PASSWORD", "")
    if username or password:
        return {"Authorization": "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()}
    token = environment.get("MLFLOW_TRACKING_TOKEN", "")
    if not token.isascii() or any(char.isspace() for char in token):
        raise Away("MLFLOW_TRACKING_TOKEN has characters that no token has")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _tls(environment: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=environment.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or None)
        if own := environment.get("MLFLOW_TRACKING_CLIENT_CERT_PATH"):
            context.load_cert_chain(own)
    except OSError as problem:
        raise Away(f"the certificates cannot be read: {problem}") from None
    if environment.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
