"""How many requests this process has in work, for the application gateway, which sends each to the replica with least.

    GET /-load            2 17\n                the requests in work, and those that have begun since the start
    GET /-load?follow=1   a line at each change, and each second, for as long as the connection is open

No Django: part of the serving process. Only those who know its secret get here (caller.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvicorn

PATH = "/-load"
REPEAT_S = 1.0  # a process that does not report for longer hangs, or is busy with one request alone


class Load:
    """Counts the requests of this process; used on the event loop only."""

    def __init__(self) -> None:
        self.running = self.begun = 0
        self.closing = False
        self.followers: set[asyncio.Event] = set()

    async def during(self, work) -> None:
        """Count a request as long as its work takes."""
        self.running += 1
        self.begun += 1
        self.changed()
        try:
            await work
        finally:
            self.running -= 1
            self.changed()

    def changed(self) -> None:
        """Let those who follow know."""
        for event in self.followers:
            event.set()

    def close(self) -> None:
        """End the answers to those who follow: the process is about to end."""
        self.closing = True
        self.changed()

    @property
    def line(self) -> bytes:
        return b"%d %d\n" % (self.running, self.begun)

    async def answer(self, scope, receive, send) -> None:
        """Answer a request for PATH."""
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
        await send(head)
        if scope["query_string"] == b"follow=1":
            await self._follow(receive, send)
        else:
            await send({"type": "http.response.body", "body": self.line, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _follow(self, receive, send) -> None:
        event = asyncio.Event()
        self.followers.add(event)
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            while not gone.done() and not self.closing:
                event.clear()
                await send({"type": "http.response.body", "body": self.line, "more_body": True})
                change = asyncio.ensure_future(event.wait())
                await asyncio.wait({change, gone}, timeout=REPEAT_S, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
        finally:
            gone.cancel()
            self.followers.discard(event)


async def _disconnected(receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Server(uvicorn.Server):
    """A server that ends the answers which follow its load before it waits for requests in work."""

    def __init__(self, config: uvicorn.Config, load: Load, ended: Callable[[], None]):
        super().__init__(config)
        self.load, self.ended = load, ended

    async def shutdown(self, sockets=None) -> None:
        self.load.close()
        await super().shutdown(sockets)
        self.ended()  # here, since uvicorn then ends the process by the signal that it got
