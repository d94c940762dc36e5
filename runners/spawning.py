"""Starts shims by a process that has their code loaded (`shim/spawner.py`): one for this process and all its runners,
begun with the first run, and again when it has been killed.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

from . import confine
from .shim.spawner import ROOM

LIMIT_S = 30.0  # within which a run is on record


class Spawner:
    """Sends requests; threads wait for their answers at the same time."""

    def __init__(self):
        self._sending = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._requests: socket.socket | None = None

    def spawn(self, folder: Path, log: int, lock: int, gpu_locks: list[int]) -> bool:
        """Start the shim of the run in this folder, which keeps the locks; return whether the run is on record."""
        answer, answers = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                with self._sending:
                    self._send(os.fsencode(folder), [answers, log, lock, *gpu_locks])
            finally:
                os.close(answers)
            if select.select([answer], [], [], LIMIT_S)[0]:
                return bool(os.read(answer, 1))
            with self._sending:  # it hangs, or was stopped
                self.end()
            return False
        finally:
            os.close(answer)

    def _send(self, message: bytes, files: list[int]) -> None:
        if self._requests is not None:
            try:
                return socket.send_fds(self._requests, [message], files)
            except OSError:  # it was killed
                self.end()
        self._begin()
        socket.send_fds(self._requests, [message], files)

    def _begin(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", str(confine.SHIM), "spawner", "-" * ROOM],
                env={}, cwd="/", stdin=theirs, stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def end(self) -> None:
        """End the process; the shims go on."""
        if self._process is not None:
            self._requests.close()
            self._process.kill()
            self._process.wait()
            self._process = self._requests = None

    def forget(self) -> None:
        """Close what this fork has of its parent's process: it would keep that one beyond the parent's end."""
        if self._requests is not None:
            self._requests.close()
            self._process.returncode = 0  # so that nobody waits for what is no child of this one
        self.__init__()


SPAWNER = Spawner()
os.register_at_fork(after_in_child=SPAWNER.forget)
