"""An ASGI application for test_websockets.py: sends far more than is read, and takes what is sent only when told to."""

from __future__ import annotations

import asyncio

from kernel.messages import Message
from mlp.websockets import PACED

PIECES, PIECE = 400, "x" * (256 << 10)
released = asyncio.Event()  # by a websocket at /release: those at /pending are accepted, those at /idle are read


async def application(scope, receive, send) -> None:
    if scope["type"] == "http":
        return await _stream(send)
    if scope["type"] != "websocket":
        return
    await receive()
    if scope["path"] == "/pending":
        await released.wait()
    await send({"type": "websocket.accept"})
    if scope["path"] == "/release":
        released.set()
    if scope["path"] == "/idle":
        await released.wait()
    if scope["path"] == "/reason":
        await send({"type": "websocket.close", "code": 4429, "reason": Message("too many")})
    if scope["path"] == "/flood":
        await receive()  # what it waits for, so that nobody is cut before the handshake is read
        for _ in range(PIECES):
            await send({"type": "websocket.send", "text": PIECE})
    if scope["path"] == "/paced":
        await receive()
        for _ in range(PIECES // 4):
            await send({"type": "websocket.send", "bytes": PIECE.encode(), PACED: True})
    await send({"type": "websocket.send", "text": "end"})
    taken = 0
    while (message := await receive())["type"] != "websocket.disconnect":
        taken += 1
        if message.get("text") == "count":
            await send({"type": "websocket.send", "text": str(taken)})


async def _stream(send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(PIECES):
        await send({"type": "http.response.body", "body": PIECE.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})
