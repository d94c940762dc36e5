"""The platform as its users call it: REST, WebDAV, log shipping, websockets. One caller belongs to one thread."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import websocket

HOST = "127.0.0.1"
TIMEOUT_S = 90  # longer than a process stays stopped: most answers come, however late
PATIENCE_S = 240  # how long a request is repeated that has no answer
AWAY = {502, 503, 504}


@dataclass(frozen=True)
class Answer:
    """An answer; `status` is 0 where there is none, or one that does not tell whether it was done."""

    status: int
    body: bytes = b""

    @property
    def known(self) -> bool:
        """Whether the platform has decided: done, or refused."""
        return self.status != 0

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self):
        return json.loads(self.body)


class Wrong:
    """What must not happen at all, noted while the load runs: an answer 500, a wrong result, a row twice."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._lock = threading.Lock()

    def add(self, words: str) -> None:
        with self._lock:
            self.words.append(words)


class Caller:
    """Requests of one user over one connection, which is opened again as often as it breaks."""

    def __init__(self, base: int, wrong: Wrong, token: str = "", port: int = 1):
        self.address, self.wrong, self.token = (HOST, base + port), wrong, token
        self.connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send one request, once, and return the answer."""
        given = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT_S)
            self.connection.request(method, path, body, given)
            answer = self.connection.getresponse()
            status, data = answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return Answer(0)
        if status == 500:
            self.wrong.add(f"{method} {path} was answered 500: {data[:300]!r}")
        if status == 507 or status >= 500:
            return Answer(0, data)
        return Answer(status, data)

    def call(self, method: str, path: str, body=None, **headers: str) -> Answer:
        """Send one REST call with a JSON body."""
        data = None if body is None else json.dumps(body).encode()
        return self.ask(method, f"/api/v1/{path}", data, Content_Type="application/json", **headers)

    def until_known(self, send: Callable[[], Answer], limit_s: float = PATIENCE_S) -> Answer:
        """Repeat what may be repeated until there is an answer; the last one when there is none in time."""
        end = time.monotonic() + limit_s
        while not (answer := send()).known and time.monotonic() < end:
            time.sleep(0.5)
        return answer

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def token_of(caller: Caller, user: str, password: str) -> str:
    """Return the user's token, by name and password. Raises RuntimeError where it is refused."""
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    answer = caller.until_known(lambda: caller.call("GET", f"users/{user}/token", Authorization=f"Basic {login}"))
    if not answer.ok:
        raise RuntimeError(f"no token for {user}: {answer}")
    return answer.json()


def follow(base: int, token: str, user: str, job: str, stop: Callable[[], bool]) -> list[dict] | None:
    """Return the rows that a websocket of the job's metrics sends until it is closed normally, None where it broke."""
    rows: list[dict] = []
    address = f"ws://{HOST}:{base + 1}/api/v1/users/{user}/job_metrics/{job}"
    with contextlib.suppress(websocket.WebSocketException, OSError):
        link = websocket.create_connection(address, timeout=2, subprotocols=["bearer", token])
        with contextlib.closing(link):
            while not stop():
                try:
                    code, data = link.recv_data()
                except websocket.WebSocketTimeoutException:
                    continue
                if code == websocket.ABNF.OPCODE_CLOSE:
                    return rows if int.from_bytes(data[:2], "big") == 1000 else None
                if code == websocket.ABNF.OPCODE_TEXT:
                    rows.append(json.loads(data))
    return None
