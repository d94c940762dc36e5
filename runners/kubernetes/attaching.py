"""A program that is started in the container of a run, by the `exec` call of the API server.

Its websocket carries the program's streams as channels (https://kubernetes.io/docs/reference/using-api/, protocols v4
and v5 of remotecommand); a thread copies between them and the descriptors of an `Attached`. Only v5, from Kubernetes
1.30 on, can end the input. When the connection ends a program with a terminal gets SIGHUP; another one goes on until it
writes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import select
import shlex
import socket
import ssl
import threading

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from websocket import ABNF, WebSocketException, setdefaulttimeout

from kernel.messages import clip
from runners.attaching import Attached, Wanted
from runners.errors import RunnerError

from . import pod_status
from .cluster import LONGEST_MESSAGE, Cluster

log = logging.getLogger(__name__)

INPUT, OUTPUT, ERRORS, STATUS, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
BLOCK = 4096  # bytes of input in a frame: less than is free in a socket that can be written
CONTAINER = "run"
CONNECT_S = 15.0
SHELL = "command -v bash >/dev/null && exec bash; exec sh"


class InPod(Attached):
    """A program in a pod: its descriptors are those of sockets, which the thread serves."""

    def __init__(self, link, descriptors: list[int], sizes: socket.socket):
        super().__init__(link, descriptors)
        self.sizes = sizes

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        if self.is_terminal and self.descriptors:
            self.sizes.send(json.dumps({"Width": columns, "Height": rows}).encode())

    def close(self) -> None:
        """Close the connection."""
        self.sizes.close()
        super().close()


def begin(cluster: Cluster, pods: list[dict], wanted: Wanted) -> Attached:
    """Start a program in the worker's pod. Raises RunnerError."""
    pod = pod_status.newest(pods, wanted.worker)
    if pod is None or not pod_status.is_alive(pod):
        raise RunnerError("the run has ended")
    if pod_status.started_at(pod) is None:
        raise RunnerError("the run has not started")
    command = list(wanted.command) or ["/bin/sh", "-c", SHELL]
    if wanted.terminal:
        words = f"TERM={shlex.quote(wanted.terminal)}; export TERM; exec {shlex.join(command)}"
        command = ["/bin/sh", "-c", words]
    setdefaulttimeout(CONNECT_S)  # the only way to say it, and nobody else uses this client
    api = client.CoreV1Api(client.ApiClient(cluster.client.configuration))  # `stream` changes the client while it calls
    try:
        web = stream(
            api.connect_get_namespaced_pod_exec, pod["metadata"]["name"], cluster.namespace, container=CONTAINER,
            command=command, stdin=True, stdout=True, stderr=not wanted.terminal, tty=bool(wanted.terminal),
            binary=True, _preload_content=False,
        )  # fmt: skip
    except ApiException as problem:
        said = clip(str(problem.reason or problem), LONGEST_MESSAGE)
        raise RunnerError("could not start: %(problem)s", problem=said) from None
    web.sock.settimeout(None)
    pairs = [socket.socketpair() for _ in range(1 if wanted.terminal else 3)]
    links = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sizes = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    copy = _Copy(web, [pair[0] for pair in pairs], links[0], sizes[0])
    threading.Thread(target=copy.run, name="attached", daemon=True).start()
    program = InPod(links[1], [pair[1].detach() for pair in pairs], sizes[1])
    program.resize(wanted.rows, wanted.columns)
    return program


class _Copy:
    """Copies between the websocket and the sockets: `ours` are the terminal, or input, output and errors."""

    def __init__(self, web, ours: list[socket.socket], link: socket.socket, sizes: socket.socket):
        self.web, self.link, self.sizes = web, link, sizes
        self.input, self.outputs = ours[0], {OUTPUT: ours[-2:][0], ERRORS: ours[-1]}
        self.sockets = [*ours, link, sizes]
        self.pending = b""
        self.takes_input = True

    def run(self) -> None:
        """Copy until the program or the connection ends; say which status it had."""
        status = None
        try:
            status = self._copy()
        except (OSError, WebSocketException, ValueError) as problem:
            log.info("a program in a pod: %s", problem)
        finally:
            for each in self.sockets[:-2]:
                each.close()
            if status is not None:
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    self.link.send(json.dumps({"status": status << 8}).encode())
            self.link.close()
            self.sizes.close()
            self.web.sock.close()

    def _copy(self) -> int | None:
        wire = self.web.sock.sock
        while True:
            if not (isinstance(wire, ssl.SSLSocket) and wire.pending()):
                poller = select.poll()
                poller.register(wire, select.POLLIN | (select.POLLOUT if self.pending else 0))
                poller.register(self.link, 0)  # reports only that the other side has gone
                poller.register(self.sizes, select.POLLIN)
                if self.takes_input and not self.pending:
                    poller.register(self.input, select.POLLIN)
                ready = dict(poller.poll())
                if ready.get(self.link.fileno(), 0) & select.POLLHUP:
                    return None
                self._send(ready, wire)
                if not ready.get(wire.fileno(), 0) & ~select.POLLOUT:
                    continue
            kind, frame = self.web.sock.recv_data_frame(True)
            if kind == ABNF.OPCODE_CLOSE:
                return None
            if kind in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) and frame.data:
                channel, data = frame.data[0], frame.data[1:]
                if channel == STATUS:
                    return self._code(json.loads(data))
                if channel in self.outputs and data:
                    self.outputs[channel].sendall(data)

    def _send(self, ready: dict, wire: socket.socket) -> None:
        if ready.get(self.input.fileno(), 0) and not self.pending:
            self.pending = self.input.recv(BLOCK)
            if not self.pending:
                self.takes_input = False
                self.web.close_channel(INPUT)
        elif self.pending and ready.get(wire.fileno(), 0) & select.POLLOUT:
            self.web.write_channel(INPUT, self.pending)
            self.pending = b""
        if ready.get(self.sizes.fileno(), 0) & select.POLLIN and (size := self.sizes.recv(BLOCK)):
            self.web.write_channel(SIZE, size)

    def _code(self, status: dict) -> int:
        """Return the exit code that a Status of the API server has; its message, if it has none, is an error."""
        if status.get("status") == "Success":
            return 0
        causes = (status.get("details") or {}).get("causes") or []
        code = next((int(each["message"]) for each in causes if each.get("reason") == "ExitCode"), None)
        if code is None:
            self.outputs[ERRORS].sendall(f"{status.get('message')}\n".encode())
        return 255 if code is None else code
