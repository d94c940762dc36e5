"""Bodies, messages and connections that are made to fill the memory, against a running platform.

Each attack sends what a user, or anybody, may send; meanwhile the memory of every part is sampled. Printed are what the
platform answered and the part that grew most; beyond LIMIT_MIB the benchmark fails. The last line is the time that an
ordinary request took meanwhile.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
import sys
import threading
import time
import urllib.error
from collections.abc import Callable

import bars
import cramjam
import instance
import memory

LIMIT_MIB = 160
WEBSOCKETS = 150  # of one user
ATTACK_S = 12  # of those that send until they are stopped
MUCH = 1 << 30
SCRIPT = """\
import os, time
print("nats", os.environ.get("MLP_NATS_URL"), flush=True)
for _ in range(1500):
    print("x" * 99_999)
print("filled", flush=True)
while True: time.sleep(1)
"""
HELLO = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: bearer, {token}\r\n\r\n"
)
JOB = "run"
Attack = Callable[["World"], str]


def frame(first: int, body: bytes) -> bytes:
    size = bytes([0x80 | len(body)]) if len(body) < 126 else b"\xfe" + len(body).to_bytes(2)
    return bytes([first]) + size + bytes(4) + body


class World:
    """The platform under attack, with a job that runs."""

    def __init__(self, platform: instance.Instance):
        self.platform = platform

    def connect(self, port: int = 0) -> socket.socket:
        link = socket.create_connection((instance.HOST, port or self.platform.port), timeout=10)
        link.settimeout(1)
        return link

    def websocket(self, *, answered: bool = True) -> socket.socket:
        """Open the websocket of the job's metrics; its messages are not read."""
        link = self.connect()
        path = f"/api/v1/users/bench/job_metrics/{JOB}"
        host = f"{instance.HOST}:{self.platform.port}"
        link.sendall(HELLO.format(path=path, host=host, token=self.platform.token).encode())
        if answered:
            link.settimeout(30)
            head = b""
            while not head.endswith(b"\r\n\r\n"):  # and not a byte of what comes after it
                head += link.recv(1) or b"\r\n\r\n"
            if b" 101 " not in head:
                raise SystemExit("the websocket was refused")
            link.settimeout(1)
        return link

    def pour(self, link: socket.socket, data: bytes, most: int = MUCH) -> str:
        """Send the data again and again until somebody stops it; return what happened."""
        sent, end, left = 0, time.monotonic() + ATTACK_S, memoryview(data)
        try:
            while sent < most and time.monotonic() < end:
                with contextlib.suppress(TimeoutError):
                    count = link.send(left)
                    sent, left = sent + count, left[count:] or memoryview(data)
        except ConnectionError:
            return f"disconnected after {sent / memory.MIB:.1f} MiB"
        return f"{sent / memory.MIB:.1f} MiB were taken in {ATTACK_S} s"

    def post(self, path: str, body: bytes, kind: str, **headers: str) -> str:
        try:
            answer = self.platform.request("POST", path, body, {"Content-Type": kind, **headers})
            return f"200 {answer[:60]!r}"
        except urllib.error.HTTPError as refusal:
            words = re.sub(r"\s+", " ", refusal.read()[:200].decode(errors="replace"))
            return f"{refusal.code} {words[:80]}"
        except OSError as problem:
            return f"{type(problem).__name__}"


def poured(first: bytes, then: bytes, *, answered: bool = True) -> Attack:
    """Return an attack that sends bytes on a websocket, then others again and again."""

    def attack(world: World) -> str:
        with world.websocket(answered=answered) as link:
            link.sendall(first)
            return world.pour(link, then)

    return attack


def posted(path: str, kind: str, make: Callable[[], bytes], **headers: str) -> Attack:
    """Return an attack that sends one body."""
    return lambda world: world.post(path, make(), kind, **headers)


def unread_logs(world: World) -> str:
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            link = stack.enter_context(world.connect())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            path = f"/api/v1/users/bench/jobs/{JOB}/log?follow=1"
            login = f"Authorization: Bearer {world.platform.token}"
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{login}\r\n\r\n".encode())
        time.sleep(ATTACK_S)
    return "4 followed logs of 143 MiB, not read"


def empty_entries() -> bytes:
    stream = b"\x0a\x02{}" + b"\x12\x00" * 10_000_000
    length, digits = len(stream), bytearray()
    while length:
        digits.append(length & 127 | (128 if length > 127 else 0))
        length >>= 7
    return bytes(cramjam.snappy.compress_raw(b"\x0a" + bytes(digits) + stream))


def many_parts() -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 100_000 + b"--b--"


def long_headers(world: World) -> str:
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            link = stack.enter_context(world.connect())
            with contextlib.suppress(OSError):
                link.sendall(b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 30_000) for n in range(9)))
        time.sleep(3)
    return "600 connections with 270 KiB of headers each"


def slow_headers(world: World) -> str:
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(world.connect()) for _ in range(1500)]
        for link in links:
            link.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        time.sleep(20)
        ended = sum(_has_ended(link) for link in links)
    return f"{ended} of 1500 were disconnected within 20 s"


def _has_ended(link: socket.socket) -> bool:
    link.setblocking(False)
    try:
        return not link.recv(1) or True
    except BlockingIOError:
        return False
    except OSError:
        return True


def many_requests(world: World) -> str:
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            link = stack.enter_context(world.connect())
            link.sendall(b"POST /api/v1/users HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        time.sleep(1)
        return world.post("/api/v1/users", b"{}", "application/json")


def many_websockets(world: World) -> str:
    """Open more than a user may have at a time: those beyond the limit are closed with 4429."""
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(world.websocket()) for _ in range(WEBSOCKETS + 50)]
        time.sleep(2)
        refused = sum(_was_closed(link) for link in links)
    return f"{len(links) - refused} were open at the same time, {refused} were closed"


def _was_closed(link: socket.socket) -> bool:
    """Return whether the server has sent the close frame of a user who has too many."""
    link.settimeout(0.05)
    with contextlib.suppress(TimeoutError):
        return (4429).to_bytes(2) in link.recv(1 << 16)
    return False


def nats_flood(world: World) -> str:
    """Publish as fast as a job can, without waiting for acknowledgements, on both of its subjects."""
    log = world.platform.request("GET", f"/api/v1/users/bench/jobs/{JOB}/log").decode(errors="replace")
    match = re.search(r"nats \w+://([^:]+):([^@]+)@", log)
    if match is None:
        return "the job has no address of NATS"
    with world.connect(world.platform.base + 10) as link:
        link.settimeout(10)
        heard = link.recv(1 << 16)  # the greeting; who speaks first is taken to speak TLS
        options = {"user": match[1], "pass": match[2], "verbose": False, "pedantic": False}
        link.sendall(b"CONNECT %s\r\nPING\r\n" % json.dumps(options).encode())
        while b"PONG" not in heard and b"-ERR" not in heard:
            heard += link.recv(1 << 16) or b"-ERR disconnected"
        if b"-ERR" in heard:
            return heard[-80:].decode()
        link.settimeout(1)
        small = json.dumps({"epoch": 1, "accuracy": 0.5, "loss": 0.5, "progress": 1}).encode()
        large = b"[%s]" % (b" " * 60_000)
        pair = b"".join(
            b"PUB job_metrics.bench.%s %d\r\n%s\r\n" % (name, len(body), body)
            for name, body in ((b"run", small), (b"run.values", large))
        )
        words = world.pour(link, pair * 20, 8 * MUCH)
    return f"{words}; the page says: {_notice(world)[:40]}"


def _notice(world: World) -> str:
    time.sleep(2)
    page = world.platform.manage("shell", "-c", "from jobs.models import Job; print(Job.objects.get().metrics_notice)")
    return page.strip().splitlines()[-1]


PACKED = {"Content-Encoding": "gzip"}
JSON, PROTOBUF = "application/json", "application/x-protobuf"
OTLP, LOKI, DATASETS = "/v1/logs", "/loki/api/v1/push", "/api/v1/users/bench/datasets"
MUCH_TEXT = b"x" * 60_000
ATTACKS: dict[str, Attack] = {
    "announced": poured(b"\x81\xff" + (2**63 - 1).to_bytes(8) + bytes(4), MUCH_TEXT),
    "fragments": poured(frame(0x01, MUCH_TEXT), frame(0x00, MUCH_TEXT)),
    "early": poured(b"", frame(0x81, MUCH_TEXT), answered=False),
    "unread_pings": poured(b"", frame(0x89, b"p" * 125) * 500),
    "messages": poured(b"", frame(0x81, MUCH_TEXT)),
    "unread_logs": unread_logs,
    "many_websockets": many_websockets,
    "gzip_bomb": posted(OTLP, JSON, lambda: gzip.compress(bytes(MUCH // 4), 6) * 4, **PACKED),
    "snappy_length": posted(LOKI, PROTOBUF, lambda: b"\xff\xff\xff\xff\x0f" + b"x" * 100),
    "empty_elements": posted(OTLP, PROTOBUF, lambda: b"\x0a\x00" * 10_000_000),
    "empty_entries": posted(LOKI, PROTOBUF, empty_entries),
    "deep_json": posted(DATASETS, JSON, lambda: b"[" * 100_000),
    "many_values": posted(f"/api/v1/users/bench/jobs/{JOB}/values", JSON, lambda: b"[%s[]]" % (b"[]," * 6_000_000)),
    "huge_number": posted(DATASETS, JSON, lambda: b'{"name": "a", "size": %s}' % (b"9" * 10_000_000)),
    "many_parts": posted("/regist_login", "multipart/form-data; boundary=b", many_parts),
    "long_headers": long_headers,
    "slow_headers": slow_headers,
    "many_requests": many_requests,
    "nats_flood": nats_flood,
}


class Visitor(threading.Thread):
    """Another user, who asks for a small thing every now and then."""

    def __init__(self, platform: instance.Instance):
        super().__init__(daemon=True)
        self.platform, self.times, self.failures = platform, [], 0
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.5):
            began = time.monotonic()
            try:
                self.platform.call("GET", "/users/bench/datasets")
                self.times.append(time.monotonic() - began)
            except OSError:
                self.failures += 1


def main() -> int:
    chosen = sys.argv[1:] or list(ATTACKS)
    worst = 0.0
    with instance.running(MLP_WEBSOCKETS_PER_USER=str(WEBSOCKETS)) as platform:
        platform.submit(JOB, SCRIPT, "running")
        world = World(platform)
        time.sleep(5)
        visitor = Visitor(platform)
        visitor.start()
        print(f"  {'attack':<16} {'grew most':<12} {'MiB':>6}  answer")
        for name in chosen:
            with memory.Watch(platform.root) as watch:
                words = ATTACKS[name](world)
            part, growth = watch.growth
            worst = max(worst, growth)
            bars.note(f"{name}: growth of {part}", growth, "MiB", most=LIMIT_MIB)
            verdict = "" if growth <= LIMIT_MIB else f"   MORE THAN {LIMIT_MIB} MiB"
            print(f"  {name:<16} {part:<12} {growth:6.0f}  {words}{verdict}", flush=True)
        visitor.stopped.set()
        visitor.join()
        print(f"  a visitor meanwhile: {instance.spread(visitor.times)}, {visitor.failures} failures")
    return int(worst > LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main())
