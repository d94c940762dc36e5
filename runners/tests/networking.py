"""Helpers of the network tests: servers to be reached, ports that are open, and the relay of a run."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path

from mlp.tests.patience import LIMIT_S
from runners import confine

from .confined import KINDS, World

PORTS = {"gateway": 21001, "proxy": 21006}  # inside of runs; nobody has to be free outside


def has_network(kind: str) -> bool:
    return "ordinary user" not in kind or kind.startswith("bwrap")


OWN = [kind for kind in KINDS if has_network(kind)] if confine.decide().network else []
TALK = f"""
import socket, sys
def talk(words=b'x\\n', host='127.0.0.1', port={PORTS["gateway"]}):
    with socket.create_connection((host, port), 20) as link, link.makefile('rwb') as stream:
        stream.write(words); stream.flush(); link.shutdown(socket.SHUT_WR)
        return stream.read().decode()
def via(url, **more):
    import urllib.request, urllib.error
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(), urllib.request.HTTPHandler())
    try:
        return opener.open(urllib.request.Request(url, **more), timeout={LIMIT_S}).read().decode()
    except urllib.error.HTTPError as problem:
        return str(problem) + problem.read().decode()
    except OSError as problem:
        return str(problem)
"""


class Echo:
    """A server on the machine's loopback that answers each line with a prefix and its client's address."""

    def __init__(self, port: int = 0):
        self.listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.lock, self.open = threading.Lock(), 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, address = self.listener.accept()
                threading.Thread(target=self.answer, args=(link, address[0]), daemon=True).start()

    def answer(self, link: socket.socket, address: str) -> None:
        with self.lock:
            self.open += 1
        with contextlib.suppress(OSError), link, link.makefile("rwb") as stream:
            for line in stream:
                stream.write(b"echo " + address.encode() + b" " + line)
                stream.flush()
            stream.write(b"end\n")
        with self.lock:
            self.open -= 1

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def listening() -> set[int]:
    """The TCP ports on which something listens in our own network namespace."""
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


PAGES = """
import http.server, socket, sys, threading
class Page(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        seen = [self.path, sorted(key.lower() for key in self.headers if key.lower().startswith('proxy')),
            len(self.rfile.read(int(self.headers['Content-Length'])))]
        self.send_response(200); self.end_headers(); self.wfile.write(repr(seen).encode())
    def do_CONNECT(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'a proxy for ' + self.path.encode())
    def log_message(self, *_): pass
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], 8080))
def echo():
    while True:
        words, whose = udp.recvfrom(2000); udp.sendto(b'echo ' + words, whose)
threading.Thread(target=echo, daemon=True).start()
server = http.server.ThreadingHTTPServer((sys.argv[1], 8080), Page)
server.socket.listen(1000)
print('up', flush=True)
server.serve_forever()
"""


def rss_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def relays(world: World) -> list[int]:
    """The relay of the run: the child of the shim that is a copy of it."""
    shim = json.loads((world.runner.folder / "job-1-1" / "begun.json").read_text())["shim"]
    line = command_of(shim)
    return [pid for pid in children(shim) if command_of(pid) == line]


def command_of(pid: int) -> bytes:
    """Return the command line of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def open_files(pid: int) -> list[str]:
    names = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(path))
    return names


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> list[int]:
    below = children(pid)
    return below + [last for child in below for last in descendants(child)]
