"""Bodies for the interfaces that no schema describes: OTLP, Loki's push, Opni's paths; and messages on websockets.

These interfaces answer by their clients' conventions: 400 for what cannot be read, 415 for an unknown coding, 401
and 403 without the right, never 5xx.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import socket
import struct
import zlib

import cramjam
from hypothesis import strategies as st
from instance import HOST

from fuzzing import world
from fuzzing.checks import INSIDE
from fuzzing.given import JSON, each
from fuzzing.ledger import Ledger, curl
from fuzzing.raw import ask
from fuzzing.world import World

OTLP, LOKI = "/v1/logs", "/loki/api/v1/push"
WRAPPED = {  # by Content-Encoding
    "": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "x-odd": bytes,
}
TEXT = st.text(max_size=30)
WHEN = st.integers() | st.integers(0, 2**64).map(str) | TEXT
VALUE = st.recursive(
    st.builds(lambda text: {"stringValue": text}, TEXT) | st.builds(lambda n: {"intValue": n}, WHEN) | JSON,
    lambda inner: st.builds(lambda values: {"arrayValue": {"values": values}}, st.lists(inner, max_size=3)),
    max_leaves=4,
)
ATTRIBUTES = st.lists(st.fixed_dictionaries({"key": TEXT, "value": VALUE}), max_size=3) | JSON
RECORDS = st.lists(st.fixed_dictionaries({"timeUnixNano": WHEN, "body": VALUE, "attributes": ATTRIBUTES}), max_size=3)
SCOPES = st.lists(st.fixed_dictionaries({"logRecords": RECORDS | JSON}), max_size=2) | JSON
EXPORT = st.fixed_dictionaries(
    {"resourceLogs": st.lists(st.fixed_dictionaries({"resource": JSON, "scopeLogs": SCOPES}), max_size=2) | JSON}
)
ENTRY = st.lists(WHEN | TEXT | JSON, max_size=3)
PUSH = st.fixed_dictionaries(
    {"streams": st.lists(st.fixed_dictionaries({"stream": st.dictionaries(TEXT, TEXT, max_size=3) | JSON,
                                                "values": st.lists(ENTRY, max_size=3) | JSON}), max_size=2) | JSON}
)  # fmt: skip
STREAM = b'\n\x1c\n\x07{a="b"}\x12\x11\n\x0b\x08\x80\xe8\x92&\x10\xff\xff\xff\x7f\x12\x02hi'
KINDS = ["application/json", "application/x-protobuf", "text/plain", "", "application/json; charset=x", "\xe9"]
OPNI = [
    ("POST", "/ModelTraining/model/train"), ("PUT", "/ModelTraining/model/current_status"),
    ("PUT", "/ModelTraining/model/statistics"), ("GET", "/ModelTraining/model/status"),
    ("GET", "/ModelTraining/model/training_parameters"), ("GET", "/ModelTraining/workload_aggregation/local"),
    ("GET", "/ModelTraining/workload_aggregation/%00"), ("GET", "/ModelTraining/gpu_info"),
    ("POST", "/ModelTraining/x"),
    ("DELETE", "/ModelTraining/model/status"), ("GET", "/ModelTraining/"), ("OPTIONS", "/ModelTraining/model/train"),
]  # fmt: skip
FIELDS = st.sampled_from(["status", "statistics", "stage", "timeElapsed", "percentageCompleted", "modelAccuracy", "x"])
OPNI_BODY = st.dictionaries(FIELDS, JSON, max_size=4) | JSON | st.fixed_dictionaries({"items": JSON})


def _json(strategy: st.SearchStrategy) -> st.SearchStrategy[bytes]:
    return strategy.map(lambda value: json.dumps(value).encode())


def _torn(strategy: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return a strategy that puts other bytes between some of them."""
    return st.builds(
        lambda data, at, more: data[: at % (len(data) + 1)] + more + data[at % (len(data) + 1) :] if more else data,
        strategy, st.integers(0, 1 << 16), st.binary(max_size=6),
    )  # fmt: skip


class Interfaces:
    """One persistent connection, and requests with the tokens of a user, of the administrator and of nobody."""

    def __init__(self, home: World, ledger: Ledger, seed: int):
        self.home, self.ledger, self.seed = home, ledger, seed
        self.connection = http.client.HTTPConnection(HOST, home.platform.port, timeout=30)
        tokens = [home.tokens["admin"], home.tokens[world.USERS[0]], "mlp_u1_wrong", "\xff", ""]
        self.tokens = st.sampled_from([*tokens[:2], *tokens])

    def logs(self, count: int) -> None:
        bodies = {
            OTLP: _torn(_json(EXPORT)) | st.binary(max_size=60) | _torn(st.just(b"\n\x08\x12\x06\x12\x04*\x02\n\x00")),
            LOKI: _torn(_json(PUSH)) | st.binary(max_size=60) | _torn(st.just(STREAM)),
        }
        for path, body in bodies.items():
            asked = st.tuples(
                body, st.sampled_from(KINDS), st.sampled_from(sorted(WRAPPED)), st.booleans(), self.tokens
            )
            each(asked, count // 2, self.seed, lambda asked, path=path: self._log(path, *asked))

    def _log(self, path: str, body: bytes, kind: str, coding: str, wrapped: bool, token: str) -> None:
        headers = {"Content-Type": kind, "Content-Encoding": coding} if coding else {"Content-Type": kind}
        self._send(
            "POST", path, headers, WRAPPED[coding](body) if wrapped else body, token, {200, 204, 400, 401, 403, 415}
        )

    def opni(self, count: int) -> None:
        asked = st.tuples(st.sampled_from(OPNI), _torn(_json(OPNI_BODY)) | st.binary(max_size=40), self.tokens)
        each(asked, count, self.seed, lambda asked: self._opni(*asked))

    def _opni(self, call: tuple[str, str], body: bytes, token: str) -> None:
        allowed = {200, 400, 401, 403, 404, 501}  # 501 is grpc-gateway's status for a method that a path does not have
        self._send(*call, {"Content-Type": "application/json"}, body, token, allowed)

    def _send(self, verb: str, path: str, headers: dict, body: bytes, token: str, allowed: set[int]) -> None:
        headers = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        label = f"{verb} {path}"
        status, content = ask(self.connection, verb, path, headers, body)
        self.ledger.count(label, status)
        shown = curl(verb, f"http://{HOST}:{self.home.platform.port}{path}", headers, body)
        if status not in allowed:
            self.ledger.find(label, f"status {status}", shown, content.decode(errors="replace"))
        elif INSIDE.search(content) and status != 404:
            self.ledger.find(label, "the inside shows", shown, content.decode(errors="replace"))


# --- websockets ----------------------------------------------------------------------------------------------------
WATCH = st.fixed_dictionaries(
    {"watch": st.lists(st.fixed_dictionaries({}, optional={
        "kind": st.sampled_from(["metrics", "lines", "parts"]) | JSON, "user": TEXT | JSON, "job": TEXT | JSON,
        "id": JSON, "after": JSON, "query": TEXT | JSON}), max_size=30) | JSON}
)  # fmt: skip


@st.composite
def frames(draw) -> bytes:
    """Make a websocket frame; sometimes its length, its mask or its kind is wrong."""
    body = draw(_json(WATCH | JSON) | st.binary(max_size=300))
    first = draw(st.sampled_from([0x81, 0x82, 0x01, 0x80, 0x88, 0x89, 0x8A, 0xF1, 0x83, 0x8F]))
    length = draw(st.just(len(body)) | st.sampled_from([0, 125, 126, 127, 1 << 16, 1 << 40, (1 << 64) - 1]))
    masked = draw(st.sampled_from([0x80, 0x80, 0x80, 0]))
    head = struct.pack("!BB", first, masked | length) if length < 126 else (
        struct.pack("!BBH", first, masked | 126, length) if length < 1 << 16
        else struct.pack("!BBQ", first, masked | 127, length)
    )  # fmt: skip
    return head + (bytes(4) if masked else b"") + body


def websockets(home: World, ledger: Ledger, seed: int, count: int) -> None:
    """Send frames to the websocket of a job's metrics and to the one of the pages."""
    cookie = home.session(world.USERS[0])
    job = f"/api/v1/users/{world.USERS[0]}/job_metrics/{world.KEPT}"
    opened = st.sampled_from(
        [(job, ""), ("/ws/live", cookie), ("/ws/live", ""), ("/api/v1/users", ""), ("/ws/x", cookie)]
    )
    asked = st.tuples(opened, st.lists(frames(), min_size=1, max_size=4), st.sampled_from(["13", "13", "8", "x"]))
    each(asked, count, seed, lambda asked: _socket(home, ledger, *asked))


def _socket(home: World, ledger: Ledger, opened: tuple[str, str], sent: list[bytes], version: str) -> None:
    path, cookie = opened
    port, key = home.platform.port, base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET {path} HTTP/1.1", f"Host: {HOST}:{port}", f"Origin: http://{HOST}:{port}", "Upgrade: websocket",
        "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", f"Sec-WebSocket-Version: {version}",
        f"Cookie: sessionid={cookie}" if cookie else f"Sec-WebSocket-Protocol: bearer, {home.tokens[world.USERS[0]]}",
    ]  # fmt: skip
    status: object = "closed"
    try:
        with socket.create_connection((HOST, port), 10) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            head = connection.recv(1 << 16)
            status = int(head.split(b" ")[1]) if head.startswith(b"HTTP/1.1 ") else "closed"
            if status == 101:
                connection.sendall(b"".join(sent))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
    except TimeoutError:
        status = f"{status}, and not closed"
    except OSError:
        pass  # closed by the server, which is its right; also before our own shutdown (ENOTCONN)
    ledger.count(f"websocket {path}", status)
    allowed = {101, 200, 302, 400, 403, 404} if not path.startswith("/api/v1") else {101, 403}
    if status not in allowed:
        shown = f"{path}, version {version}, frames {[frame.hex() for frame in sent]}"
        ledger.find(f"websocket {path}", f"status {status}", shown)
