"""The browser's end of a websocket, for tests: as patient as a busy machine needs, since speed is not what they ask."""

from __future__ import annotations

from channels.testing import WebsocketCommunicator

LIMIT_S = 60.0


class Link(WebsocketCommunicator):
    """Channels' own gives the server one second for everything, a log-in by the database included."""

    async def receive_output(self, timeout: float = LIMIT_S) -> dict:
        return await super().receive_output(max(timeout, LIMIT_S))

    async def wait(self, timeout: float = LIMIT_S) -> None:
        """For the end of the server's side."""
        await super().wait(max(timeout, LIMIT_S))
