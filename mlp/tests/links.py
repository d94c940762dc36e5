"""The client end of a websocket, for tests; its time-outs are long enough for a busy machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from channels.testing import WebsocketCommunicator

from mlp.tests.patience import LIMIT_S


class Link(WebsocketCommunicator):
    """Channels' communicator with longer time-outs: its own gives the server one second for everything."""

    async def receive_output(self, timeout: float = LIMIT_S) -> dict:
        return await super().receive_output(max(timeout, LIMIT_S))

    async def wait(self, timeout: float = LIMIT_S) -> None:
        """Wait until the server's side has ended."""
        await super().wait(max(timeout, LIMIT_S))

    async def assert_silent(self) -> None:
        """End the websocket; assert that it has sent nothing more."""
        await self.disconnect()
        assert self.output_queue.empty()


async def eventually(condition: Callable[[], object]) -> None:
    """Wait in an event loop until a condition holds."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)
