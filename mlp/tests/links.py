"""The client end of a websocket, for tests; its time-outs are long enough for a busy machine."""

from __future__ import annotations

from channels.testing import WebsocketCommunicator

LIMIT_S = 60.0


class Link(WebsocketCommunicator):
    """Channels' communicator with longer time-outs: its own gives the server one second for everything."""

    async def receive_output(self, timeout: float = LIMIT_S) -> dict:
        return await super().receive_output(max(timeout, LIMIT_S))

    async def wait(self, timeout: float = LIMIT_S) -> None:
        """Wait until the server's side has ended."""
        await super().wait(max(timeout, LIMIT_S))
