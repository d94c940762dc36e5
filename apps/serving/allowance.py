"""What the gateway says of a request: the largest body and the longest time that the application's owner allows, and
the name of the other model while a canary is up.

The gateway replaces what a caller sends in these headers; without it, callers may only ask for less than the limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from values import BadRequest

BODY, TIME, ALSO = b"x-app-body", b"x-app-time", b"x-app-also"  # bytes, seconds, a name
MIB = 1 << 20


class Late(BadRequest):
    """The answer took longer than is allowed."""

    status = 504


def most_bytes(scope, most: int) -> int:
    """Return how many bytes the body may have, packed and unpacked, at most `most`."""
    return min(_number(scope, BODY) or most, most)


def also_named(scope) -> tuple[str, ...]:
    """Return the names of the model to which the application moves: callers may name either, whichever answers."""
    name = dict(scope["headers"]).get(ALSO, b"").decode("latin-1")
    return (name,) if name else ()


def too_large(most: int) -> str:
    """Return what is said of a body that is larger than `most` bytes."""
    return f"body: too large, at most {most // MIB} MiB" if most >= MIB else f"body: too large, at most {most} bytes"


async def in_time(scope, work: Coroutine):
    """Return what the work returns. Raises Late, and gives it up, when the time that the request may take is over."""
    seconds = _number(scope, TIME)
    if not seconds:
        return await work
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    await asyncio.wait({task})  # it has let go of what it held
    raise Late(f"the model did not answer within {seconds} s, the limit of the application")


def _number(scope, name: bytes) -> int | None:
    text = dict(scope["headers"]).get(name, b"")
    return int(text) if text.isdigit() and len(text) < 12 else None
