"""The fake API server's `exec`: a websocket with the channels of v5.channel.k8s.io, and a process of this machine."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from urllib.parse import parse_qs, urlsplit

PROTOCOL = "v5.channel.k8s.io"
ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
INPUT, OUTPUT, ERRORS, STATUS, SIZE, CLOSE = 0, 1, 2, 3, 4, 255


def serve(handler, node, pod: dict) -> None:
    """Answer the handshake and run the command to its end."""
    query = parse_qs(urlsplit(handler.path).query)
    key = handler.headers["Sec-WebSocket-Key"].encode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + ACCEPT).digest()).decode())
    handler.send_header("Sec-WebSocket-Protocol", PROTOCOL)
    handler.end_headers()
    handler.wfile.flush()
    handler.close_connection = True
    Execution(handler, node, pod, query["command"], query.get("tty", [""])[0].lower() == "true").run()


class Execution:
    """A command whose streams are channels of the websocket."""

    def __init__(self, handler, node, pod: dict, command: list[str], tty: bool):
        self.handler, self.lock = handler, threading.Lock()
        _where, environment, folder = node.surroundings(pod)
        self.input, self.process = None, None
        outputs: dict[int, int] = {}
        try:
            if tty:
                self.input, other = pty.openpty()
                outputs = {OUTPUT: self.input}
                self.process = subprocess.Popen(
                    command, cwd=folder, env=environment, stdin=other, stdout=other, stderr=other,
                    start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                )  # fmt: skip
                os.close(other)
            else:
                self.process = subprocess.Popen(
                    command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, start_new_session=True, bufsize=0,
                )  # fmt: skip
                self.input = self.process.stdin.fileno()
                outputs = {OUTPUT: self.process.stdout.fileno(), ERRORS: self.process.stderr.fileno()}
        except OSError as problem:
            words = f'OCI runtime exec failed: exec: "{command[0]}": {problem.strerror}'
            self.failed = {"status": "Failure", "reason": "InternalError", "message": words}
        self.readers = [threading.Thread(target=self.read, args=each, daemon=True) for each in outputs.items()]

    def run(self) -> None:
        """Serve to the end of the command or of the websocket."""
        if self.process is None:
            return self.send(STATUS, json.dumps(self.failed).encode())
        for reader in self.readers:
            reader.start()
        threading.Thread(target=self.take, daemon=True).start()
        code = self.process.wait()
        for reader in self.readers:
            reader.join(5)
        causes = [{"reason": "ExitCode", "message": str(code if code >= 0 else 128 - code)}]
        failed = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
        self.send(STATUS, json.dumps(failed if code else {"status": "Success"}).encode())
        return None

    def read(self, channel: int, output: int) -> None:
        """Send what the command writes."""
        with contextlib.suppress(OSError):  # a terminal that nobody has open any more
            while data := os.read(output, 1 << 15):
                self.send(channel, data)

    def send(self, channel: int, data: bytes) -> None:
        """Send a message of one frame."""
        data = bytes([channel]) + data
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack("!H", len(data))
        with self.lock, contextlib.suppress(OSError, ValueError):
            self.handler.wfile.write(b"\x82" + size + data)
            self.handler.wfile.flush()

    def take(self) -> None:
        """Pass on what the client sends; hang up at its end."""
        with contextlib.suppress(OSError, ValueError, struct.error):
            while (frame := self.frame()) is not None:
                channel, data = frame[0], frame[1:]
                if channel == SIZE:
                    size = json.loads(data)
                    fcntl.ioctl(self.input, termios.TIOCSWINSZ, struct.pack("4H", size["Height"], size["Width"], 0, 0))
                elif channel == CLOSE:
                    self.process.stdin.close()
                while channel == INPUT and data:
                    data = data[os.write(self.input, data) :]
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGHUP)

    def frame(self) -> bytes | None:
        """Return the next message, None at the end."""
        read = self.handler.rfile.read
        head = read(2)
        if len(head) < 2 or head[0] & 0x0F == 8:
            return None
        size = head[1] & 0x7F
        if size >= 126:
            (size,) = struct.unpack("!H" if size == 126 else "!Q", read(2 if size == 126 else 8))
        mask = read(4)
        return bytes(each ^ mask[place % 4] for place, each in enumerate(read(size)))
