"""An ASGI application that sends a websocket far more than it reads. Served by test_websockets.py."""

from __future__ import annotations

PIECES, PIECE = 400, "x" * (256 << 10)


async def application(scope, receive, send) -> None:
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    if scope["path"] == "/flood":
        await receive()  # what it waits for, so that nobody is cut before the handshake is read
        for _ in range(PIECES):
            await send({"type": "websocket.send", "text": PIECE})
    await send({"type": "websocket.send", "text": "end"})
    while (await receive())["type"] != "websocket.disconnect":
        pass
