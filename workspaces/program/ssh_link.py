"""The websocket `-ssh` of a workspace: what arrives goes to an SSH server of its own (sshd.py), and back."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import sys
import time
from pathlib import Path

from tornado import websocket

PROGRAM = Path(__file__).resolve().with_name("sshd.py")
HOST_KEY = ".ssh_host_key"  # beside the home, so that it stays the same and is nobody's upload
BLOCK = 1 << 16
QUIET_BYTES, EVERY_S = 2048, 5.0  # a client that sends less in that time only keeps its connection alive
NOTHING_THERE = "this workspace has no SSH server: an administrator adds asyncssh to MLP_WORKSPACE_PACKAGES"

links: set[SshLink] = set()  # those that are open


class SshLink(websocket.WebSocketHandler):
    """One client. Subclasses check that its request comes from the gateway."""

    last = 0.0  # when it was used last, a Unix time
    busy = False  # whether a command computes
    sent = 0  # bytes since `since`
    since = 0.0

    async def open(self) -> None:
        """Start the server."""
        if importlib.util.find_spec("asyncssh") is None:
            self.close(1011, NOTHING_THERE)
            return
        self.last, self.since = time.time(), time.monotonic()
        links.add(self)
        ours, theirs = socket.socketpair()
        with theirs:
            self.server = await asyncio.create_subprocess_exec(
                sys.executable, PROGRAM, Path(os.environ["HOME"]).with_name(HOST_KEY), stdin=theirs,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
        self.reader, self.writer = await asyncio.open_connection(sock=ours)
        self.tasks = [asyncio.create_task(self._back()), asyncio.create_task(self._heard())]

    async def on_message(self, message: bytes | str) -> None:
        """Write what the client has sent to the server, as fast as that takes it."""
        now = time.monotonic()
        if now - self.since > EVERY_S:
            self.sent, self.since = 0, now
        self.sent += len(message)
        if self.sent > QUIET_BYTES:
            self.last = time.time()
        try:
            self.writer.write(message.encode() if isinstance(message, str) else message)
            await self.writer.drain()
        except OSError:
            self.close()

    def on_close(self) -> None:
        """End the server, which hangs up the terminals that it has opened."""
        links.discard(self)
        if hasattr(self, "writer"):
            self.writer.close()

    async def _back(self) -> None:
        try:
            while data := await self.reader.read(BLOCK):
                await self.write_message(data, binary=True)
        except (OSError, websocket.WebSocketClosedError):
            pass
        self.close()

    async def _heard(self) -> None:
        """Read what the server says of its use, to its end."""
        while line := await self.server.stdout.readline():
            said = json.loads(line)
            self.busy, self.last = said["busy"], max(self.last, said["last"])
        self.busy = False
        await self.server.wait()
