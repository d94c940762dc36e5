"""A program that is started in a run beside its scripts, as the platform has it; `shim/attach.py` is the other side."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import struct
import termios
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import RunnerError
from .shim.attach import REQUEST, SUFFIX

START_S = 15  # within which the run's supervisor has to answer
WOKEN_S = 1.0  # between two signals to it: one that has just started misses the first
LEFT_S = 600  # nobody waits so long
SECRET_S = 1.0  # within which a caller of the socket has to send it
MESSAGE = 4096
MAX_DESCRIPTORS = 3


@dataclass(frozen=True)
class Wanted:
    """A program: `command` is empty for a shell; `terminal` is its kind, a value of TERM, "" for pipes."""

    command: tuple[str, ...] = ()
    terminal: str = ""
    rows: int = 24
    columns: int = 80
    worker: int = 0


class Attached:
    """A program that runs. Descriptors do not block: `input` is written, `outputs` are read, output first and errors
    second, or only a terminal's. `link` becomes readable at its end. `close` hangs up.
    """

    def __init__(self, link: socket.socket, descriptors: list[int]):
        self.link, self.descriptors = link, descriptors
        self.input, self.outputs = descriptors[0], descriptors[1:] or descriptors
        self.is_terminal = len(descriptors) == 1
        self.takes_input = True
        link.setblocking(False)
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        if self.is_terminal and self.descriptors:
            fcntl.ioctl(self.input, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def end_input(self) -> None:
        """Send no more input; a pipe is closed."""
        self.takes_input = False
        if not self.is_terminal and self.input in self.descriptors:
            self.descriptors.remove(self.input)
            os.close(self.input)

    def exit_code(self) -> int | None:
        """Return the exit code, 128 and the signal's number after a signal; None while the program runs. Raises
        RunnerError when the run itself has ended.
        """
        try:
            message = self.link.recv(MESSAGE)
        except BlockingIOError:
            return None
        except OSError:
            message = b""
        if not message:
            raise RunnerError("the run has ended")
        code = os.waitstatus_to_exitcode(json.loads(message)["status"])
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Close the connection: a program that still runs gets SIGHUP."""
        self.link.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


def begin(folder: Path, sockets: Path, wanted: Wanted) -> Attached:
    """Start a program in the run whose records are in `folder`. Raises RunnerError."""
    mark = secrets.token_hex(4)
    request, secret = folder / f"{REQUEST}{mark}{SUFFIX}", secrets.token_hex(32)
    try:
        _remove_left(sockets)
        with _listener(sockets / f"{REQUEST}{mark}") as listener:
            asked = asdict(wanted) | {"size": [wanted.rows, wanted.columns]}
            asked |= {"socket": listener.getsockname(), "secret": secret}
            try:
                _write(request, asked)
                link = _accepted(listener, secret.encode(), folder)
            finally:
                request.unlink(missing_ok=True)
    except OSError as problem:  # the disk is full, for example
        raise RunnerError("could not start: %(problem)s", problem=problem.strerror or str(problem)) from problem
    link.settimeout(START_S)
    try:
        answer, descriptors, _flags, _address = socket.recv_fds(link, MESSAGE, MAX_DESCRIPTORS)
        said = json.loads(answer) if answer else {}
        if descriptors:
            return Attached(link, list(descriptors))
    except OSError as problem:
        said = {"failed": str(problem)}
    link.close()
    if "failed" in said:
        raise RunnerError("could not start: %(problem)s", problem=said["failed"])
    raise RunnerError("the run has ended")


def wake(folder: Path) -> None:
    """Let the run's supervisor look for requests; nothing happens where there is none."""
    with contextlib.suppress(OSError):
        control = os.open(folder / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(control, b".")
        finally:
            os.close(control)


def _remove_left(sockets: Path) -> None:
    """Remove the sockets of callers that were killed while they waited."""
    for path in sockets.glob(f"{REQUEST}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > LEFT_S:
                path.unlink()


@contextlib.contextmanager
def _listener(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        try:
            listener.listen()
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _write(request: Path, asked: dict) -> None:
    """Write the request, whole and for nobody else. Raises RunnerError when the run's folder is gone."""
    draft = request.with_suffix(".part")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asked, file)
        draft.replace(request)
    except FileNotFoundError:
        raise RunnerError("the run has ended") from None


def _accepted(listener: socket.socket, secret: bytes, folder: Path) -> socket.socket:
    """Return the connection of the run's supervisor, which knows the secret. Raises RunnerError."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        wake(folder)
        listener.settimeout(WOKEN_S)
        with contextlib.suppress(TimeoutError):
            link, _address = listener.accept()
            link.settimeout(SECRET_S)
            with contextlib.suppress(OSError):
                if secrets.compare_digest(link.recv(MESSAGE), secret):
                    return link
            link.close()
    raise RunnerError("the supervisor of the run does not answer; was it started by an older release?")
