"""Connections to Valkey that fail when the server hangs (kernel.answering): for queue, cache and channel layer.

redis-py itself would wait without end, or with a time limit once for each command of each thread, and repeat that.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from urllib.parse import unquote, urlsplit

import redis
from channels_redis.core import RedisChannelLayer
from django.conf import settings
from redis import asyncio as aioredis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from . import answering, sockets

DEFAULT_PORT = 6379
ANSWER_S = 1.5, 5.0  # where people wait, and elsewhere
BLOCKING = {"BZPOPMIN"}  # the one command that waits at the server; a time limit of its own ends it
HANGS = "Valkey does not answer"


def _address() -> sockets.Address:
    parts = urlsplit(settings.REDIS_URL)
    return unquote(parts.path) if parts.scheme == "unix" else (parts.hostname, parts.port or DEFAULT_PORT)


SERVER = answering.Server("valkey", _address, b"PING\r\n")


class Hangs(redis.ConnectionError):
    """Valkey hangs. Everything that handles a lost connection handles this."""


class _Watched:
    """What a connection of redis-py gets beside its own class. Each thread that waits when the server begins to hang
    learns it by its own time limit; later calls fail at once.

    A command is repeated once, at once: after a restart of the server its connections are closed. When the server
    hangs, the repetition fails without waiting.
    """

    def __init__(self, **options):
        limit_s = answering.limit_s(*ANSWER_S)
        limits = {"socket_timeout": limit_s, "socket_connect_timeout": limit_s, "retry": Retry(NoBackoff(), 1)}
        super().__init__(**options | limits)

    def connect_check_health(self, *arguments, **options):
        return self._guarded(super().connect_check_health, arguments, options)

    def send_packed_command(self, *arguments, **options):
        return self._guarded(super().send_packed_command, arguments, options)

    def read_response(self, *arguments, **options):
        try:
            return super().read_response(*arguments, **options)
        except redis.TimeoutError:
            SERVER.condemn()
            raise Hangs(HANGS) from None

    @staticmethod
    def _guarded(call, arguments, options):
        if SERVER.hangs:
            raise Hangs(HANGS)
        try:
            return call(*arguments, **options)
        except redis.TimeoutError:
            SERVER.condemn()
            raise Hangs(HANGS) from None


@functools.cache
def _watched(mixin: type, connection_class: type) -> type:
    return type("Watched", (mixin, connection_class), {})


class Pool(redis.ConnectionPool):
    """A pool of such connections."""

    def __init__(self, connection_class: type = redis.Connection, **options):
        super().__init__(_watched(_Watched, connection_class), **options)


class _WatchedAsync:
    """The same for asyncio. redis-py's own time limit would make a task for each command that is sent."""

    def __init__(self, **options):
        super().__init__(**options | {"retry": AsyncRetry(NoBackoff(), 1)})
        self.usual_s = self.limit_s = answering.limit_s(*ANSWER_S)

    async def connect_check_health(self, *arguments, **options):
        return await self._within(super().connect_check_health(*arguments, **options))

    async def send_command(self, *arguments, **options):
        self.limit_s = self.usual_s + (RedisChannelLayer.brpop_timeout if arguments[0] in BLOCKING else 0)
        await super().send_command(*arguments, **options)

    async def send_packed_command(self, *arguments, **options):
        return await self._within(super().send_packed_command(*arguments, **options))

    async def read_response(self, *arguments, **options):
        return await self._within(super().read_response(*arguments, **options), reading=True)

    async def _within(self, work: Coroutine, reading: bool = False):
        """Return what the work does within the time limit; an answer that is on its way is waited for in any case."""
        if SERVER.hangs and not reading:
            work.close()
            raise Hangs(HANGS)
        try:
            async with asyncio.timeout(self.limit_s):
                return await work
        except TimeoutError:
            await self.disconnect(nowait=True)
            SERVER.condemn()
            raise Hangs(HANGS) from None


class AsyncPool(aioredis.ConnectionPool):
    """A pool of such connections for asyncio."""

    def __init__(self, connection_class: type = aioredis.Connection, **options):
        super().__init__(_watched(_WatchedAsync, connection_class), **options)


class ChannelLayer(RedisChannelLayer):
    """The channel layer with such connections."""

    def create_pool(self, index: int) -> AsyncPool:
        host = dict(self.hosts[index])
        return AsyncPool.from_url(host.pop("address"), **host)


def client() -> redis.Redis:
    """Return a client with a pool of its own."""
    return redis.Redis(connection_pool=Pool.from_url(settings.REDIS_URL))
