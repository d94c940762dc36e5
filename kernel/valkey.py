"""Connections to Valkey that fail when the server hangs (kernel.liveness): for queue, cache and channel layer.

redis-py itself would wait without end, or with a time limit once for each command of each thread, and repeat that.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from urllib.parse import unquote, urlsplit

import redis
from channels_redis.core import RedisChannelLayer
from django.conf import settings
from redis import asyncio as aioredis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from . import liveness, sockets

DEFAULT_PORT = 6379
CONNECT_S = 2.0, 5.0  # where people wait, and elsewhere
LONGEST_S = 30.0  # for an answer
BLOCKING = {"BZPOPMIN"}  # the one command that waits at the server; a time limit of its own ends it
HANGS = "Valkey does not answer"


def _address() -> sockets.Address:
    parts = urlsplit(settings.REDIS_URL)
    return unquote(parts.path) if parts.scheme == "unix" else (parts.hostname, parts.port or DEFAULT_PORT)


SERVER = liveness.Server("valkey", _address, b"PING\r\n")


class Hangs(redis.ConnectionError):
    """Valkey hangs. Everything that handles a lost connection handles this."""


@functools.cache
def _watched(mixin: type, connection_class: type) -> type:
    return type("Watched", (mixin, connection_class), {})


class _Watched:
    """What a connection of redis-py gets beside its own class: it waits for an answer as long as the server does not
    hang, and fails at once while it does.

    A command is repeated once, at once: after a restart of the server its connections are closed. When the server
    hangs, the repetition fails without waiting.
    """

    def __init__(self, **options):
        limit_s = liveness.limit_s(*CONNECT_S)  # also for sending, and for the rest of an answer that has begun
        limits = {"socket_timeout": limit_s, "socket_connect_timeout": limit_s, "retry": Retry(NoBackoff(), 1)}
        super().__init__(**options | limits)

    def connect_check_health(self, *arguments, **options):
        return _guarded(super().connect_check_health, arguments, options)

    def send_packed_command(self, *arguments, **options):
        return _guarded(super().send_packed_command, arguments, options)

    def read_response(self, *arguments, **options):
        if not self.can_read(liveness.SILENCE_S):
            end = time.monotonic() + LONGEST_S
            while not self.can_read(liveness.LOOK_S):
                if SERVER.hangs or time.monotonic() > end:
                    self.disconnect()
                    raise Hangs(HANGS)
                SERVER.suspect()
        SERVER.answered()
        return super().read_response(*arguments, **options)


def _guarded(call: Callable, arguments: tuple, options: dict):
    """Return what the call does. Raises Hangs, at once while the server hangs."""
    if SERVER.hangs:
        raise Hangs(HANGS)
    try:
        return call(*arguments, **options)
    except redis.TimeoutError:
        SERVER.condemn()
        raise Hangs(HANGS) from None


class Pool(redis.ConnectionPool):
    """A pool of such connections."""

    def __init__(self, connection_class: type = redis.Connection, **options):
        super().__init__(_watched(_Watched, connection_class), **options)


class _WatchedAsync:
    """The same for asyncio. redis-py's own time limit would make a task for each command that is sent."""

    def __init__(self, **options):
        super().__init__(**options | {"retry": AsyncRetry(NoBackoff(), 1)})
        self.blocks_s = 0  # how long the command may wait at the server

    async def connect_check_health(self, *arguments, **options):
        return await self._within(super().connect_check_health(*arguments, **options))

    async def send_command(self, *arguments, **options):
        self.blocks_s = RedisChannelLayer.brpop_timeout if arguments[0] in BLOCKING else 0
        await super().send_command(*arguments, **options)

    async def send_packed_command(self, *arguments, **options):
        return await self._within(super().send_packed_command(*arguments, **options))

    async def read_response(self, *arguments, **options):
        answer = await self._within(super().read_response(*arguments, **options), self.blocks_s, reading=True)
        SERVER.answered()
        return answer

    async def _within(self, work: Coroutine, blocks_s: float = 0, reading: bool = False):
        """Return what the work does, unless the server hangs; an answer that is on its way is waited for first."""
        if SERVER.hangs and not reading:
            work.close()
            raise Hangs(HANGS)
        loop = asyncio.get_running_loop()
        end = loop.time() + blocks_s + LONGEST_S

        def look() -> None:
            nonlocal timer
            if SERVER.hangs or loop.time() > end:
                bound.reschedule(loop.time())
            else:
                SERVER.suspect()
                timer = loop.call_later(liveness.LOOK_S, look)

        timer = loop.call_later(blocks_s + liveness.SILENCE_S, look)
        try:
            async with asyncio.timeout(None) as bound:
                return await work
        except TimeoutError:
            await self.disconnect(nowait=True)
            raise Hangs(HANGS) from None
        finally:
            timer.cancel()


class AsyncPool(aioredis.ConnectionPool):
    """A pool of such connections for asyncio."""

    def __init__(self, connection_class: type = aioredis.Connection, **options):
        super().__init__(_watched(_WatchedAsync, connection_class), **options)


class ChannelLayer(RedisChannelLayer):
    """The channel layer with such connections."""

    def create_pool(self, index: int) -> AsyncPool:
        host = dict(self.hosts[index])
        return AsyncPool.from_url(host.pop("address"), **host)

    def with_members(self, *groups: str) -> list[str]:
        """Return those of the groups that somebody has joined. Needs no event loop."""
        asked = _shared().pipeline(transaction=False)
        for group in groups:
            asked.exists(self._group_key(group))
        return [group for group, exists in zip(groups, asked.execute(), strict=True) if exists]


@functools.cache
def _shared() -> redis.Redis:
    return client()


def client() -> redis.Redis:
    """Return a client with a pool of its own."""
    return redis.Redis(connection_pool=Pool.from_url(settings.REDIS_URL))
