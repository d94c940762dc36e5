"""Room for deep calls.

CPython 3.11 to 3.13 keep the frames of a thread's calls in chunks of 16 KiB (Python/pystate.c, push_chunk), and give a
chunk back to the system as soon as the first frame in it has ended. Where code at that depth calls functions in a loop,
each call costs two system calls and page faults: measured here, 15 to 21 µs instead of 0.1. Django's calls below those
of pytest are deep enough for such places; in the platform's own processes all calls of a request fit into one chunk. A
frame that needs more than half a MiB makes the interpreter take a chunk of a whole one, in which the calls below it
have room for thousands of frames. Only the pages that are written take memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

SLOTS = 70_000  # of 8 bytes: a little more than half of the chunk of 1 MiB

Parameters, Result = ParamSpec("Parameters"), TypeVar("Result")


def with_room(call: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    """Return what the call returns; its own calls share one large chunk."""
    return call(*args, **kwargs)


with_room.__code__ = with_room.__code__.replace(co_stacksize=SLOTS)
