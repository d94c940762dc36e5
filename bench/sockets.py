"""Websocket clients for the benchmarks: many in one process; each notes when a message arrived. No dependencies."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Callable


class Client:
    """Reads the text messages of one websocket and passes each on with its time of arrival."""

    def __init__(self, host: str, port: int, path: str, token: str, took: Callable[[dict, float], None]):
        self.address, self.path, self.token, self.took = (host, port), path, token, took
        self.closed = False

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(*self.address)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {self.path} HTTP/1.1", f"Host: {self.address[0]}:{self.address[1]}", "Upgrade: websocket"]
        lines += ["Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
        lines += [f"Sec-WebSocket-Protocol: bearer, {self.token}", "", ""]
        self.writer.write("\r\n".join(lines).encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(head.decode(errors="replace"))

    async def read(self) -> None:
        """Read until the other side closes."""
        while True:
            first, second = await self.reader.readexactly(2)
            length = second & 127
            if length >= 126:
                length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8))
            data = await self.reader.readexactly(length)
            kind = first & 15
            if kind == 8:
                self.closed = True
                return
            if kind == 9:  # a ping: its pong is masked with zeros
                self.writer.write(bytes([138, 128 | length]) + bytes(4) + data)
            elif kind == 1:
                self.took(json.loads(data), time.time())

    def close(self) -> None:
        self.writer.close()
