"""Services on NATS: `serve` subscribes to their subjects, calls them in threads and publishes what they return.

A service is a plain object with `name` and `subjects`: a map of subject to Route (or a tuple of its fields). Handlers
know nothing of NATS: they take bytes (a list of them when the route batches) and return messages or a Reply, so tests
call them directly.

    handle(data) -> None | [(subject, bytes), …] | Reply

Optional: `start()` before the first message, `ticks` = ((seconds, function), …), `stop()` at the end; all may return
messages. A tick's third member, if any, is asked before whether it has anything to do, and waits for nothing. `keys` =
((bucket, key, function), …): the function is called without arguments when the key of the key-value store may have
changed, perhaps just before the new value can be read (see Calm). Handlers of one service run one at a time unless it
says `serial = False`; of one subject always in order. What a handler raises is logged with the subject, and the message
is dropped. Used by `manage.py aiops`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from django.db import close_old_connections, connections

from . import bus, keyvalue
from .bus import Client, NatsError

log = logging.getLogger(__name__)

Messages = Sequence[tuple[str, bytes]]
RETRY_S = 1.0
DRAIN_S = 2.0
STIRRED_S = 10.0  # for which Calm has each look taken after a change
QUIET_S = 30.0  # between two looks while no change is reported, unless a service asks for others
# Messages waiting for one subject's handler: here and in the client. When full, the newest is dropped and logged.
WAITING, WAITING_BYTES = 4096, 32 << 20
BEHIND, BEHIND_BYTES = 65536, 64 << 20


@dataclass(frozen=True)
class Route:
    """How a subject is subscribed.

    With `batch` > 1 the handler takes a list of up to that many bodies, gathered for at most `linger_s` seconds after
    the first; such a route cannot reply. `queue` is the queue group, "" for every replica.
    """

    handle: Callable[[Any], Any]
    queue: str = ""
    batch: int = 1
    linger_s: float = 0.0


@dataclass(frozen=True)
class Reply:
    """An answer: `before` is published, the answer is sent, then `after` does the work and may return messages."""

    data: bytes
    before: Messages = ()
    after: Callable[[], Messages | None] | None = None


class Calm:
    """Spares most of the periodic looks at something that reports its changes: a look is due for a while after each
    change, since the message may be there before the change can be seen, and now and then, since it may be lost.
    """

    def __init__(self, quiet_s: float = QUIET_S):
        self.quiet_s = quiet_s
        self.stirred, self.looked = time.monotonic(), float("-inf")

    def stir(self) -> None:
        """Record that something has changed, or is under way."""
        self.stirred = time.monotonic()

    def is_due(self) -> bool:
        """Return whether to look now."""
        now = time.monotonic()
        due = now - self.stirred < STIRRED_S or now - self.looked >= self.quiet_s
        if due:
            self.looked = now
        return due


class _Subscription:
    """One subject of one service: gathers messages, calls the handler, publishes; one batch at a time."""

    def __init__(self, host: _Host, service, subject: str, route: Route):
        self.host, self.service, self.subject, self.route = host, service, subject, route
        self.waiting: deque = deque()
        self.arrived, self.room = asyncio.Event(), asyncio.Event()
        self.room.set()
        self.busy = False
        self.bytes = 0
        self.inner = None

    async def open(self, client: Client) -> None:
        self.inner = await client.subscribe(
            self.subject,
            self.route.queue,
            cb=self._take,
            pending_msgs_limit=BEHIND,
            pending_bytes_limit=BEHIND_BYTES,
        )

    async def _take(self, message) -> None:
        self.waiting.append(message)
        self.bytes += len(message.data)
        self.arrived.set()
        if len(self.waiting) >= WAITING or self.bytes >= WAITING_BYTES:
            self.room.clear()
            await self.room.wait()

    async def pump(self) -> None:
        while True:
            await self.arrived.wait()
            if self.route.batch > 1 and self.route.linger_s and len(self.waiting) < self.route.batch:
                await asyncio.sleep(self.route.linger_s)
            self.busy = True
            batch = [self.waiting.popleft() for _ in range(min(self.route.batch, len(self.waiting)))]
            if not self.waiting:
                self.arrived.clear()
            self.bytes -= sum(len(message.data) for message in batch)
            if len(self.waiting) < WAITING // 2 and self.bytes < WAITING_BYTES // 2:
                self.room.set()
            try:
                await self._handle(batch)
            finally:
                self.busy = False

    async def _handle(self, batch: list) -> None:
        body = [message.data for message in batch] if self.route.batch > 1 else batch[0].data
        result = await self.host.run(self.service, self.subject, self.route.handle, body)
        if isinstance(result, Reply):
            answer = [(batch[0].reply, result.data)] if batch[0].reply else []
            await self.host.publish([*result.before, *answer], flush=True)
            if result.after is not None:
                await self.host.publish(await self.host.run(self.service, self.subject, result.after))
        else:
            await self.host.publish(result)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.busy


class _Host:
    """Shared by all subscriptions of a process: the connection, the threads, one lock for each serial service."""

    def __init__(self, services: Sequence):
        self.services = services
        self.client: Client | None = None
        routes = sum(len(service.subjects) for service in services)
        self.threads = ThreadPoolExecutor(routes + 2 * len(services) + 2, thread_name_prefix="service")
        self.watched = [(service, *key) for service in services for key in getattr(service, "keys", ())]
        self.locks = {id(service): asyncio.Lock() for service in services if getattr(service, "serial", True)}

    async def run(self, service, what: str, work: Callable, *arguments):
        """Call in a thread; an exception is logged with the subject and dropped."""

        def guarded():
            close_old_connections()
            try:
                return work(*arguments)
            except Exception as problem:  # whatever it is, this message is dropped and the service goes on
                expected = isinstance(problem, ValueError | bus.Fault)
                log.warning("%s: %s: dropped: %s", service.name, what, problem, exc_info=None if expected else problem)
                return None
            finally:
                close_old_connections()

        async with self.locks.get(id(service)) or contextlib.nullcontext():
            return await asyncio.get_running_loop().run_in_executor(self.threads, guarded)

    def end_threads(self) -> None:
        """End the threads, each with its database connections; a handler that is still at work keeps its own."""
        count = len(self.threads._threads)
        meet = threading.Barrier(max(1, count))

        def close() -> None:
            connections.close_all()
            with contextlib.suppress(threading.BrokenBarrierError):
                meet.wait(1)

        wait([self.threads.submit(close) for _ in range(count)], 1.5)
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def publish(self, messages, flush: bool = False) -> None:
        for subject, data in messages or ():
            try:
                await self.client.publish(subject, data)
            except (NatsError, OSError) as problem:
                log.warning("%s: could not be published: %s", subject, problem or type(problem).__name__)
        if flush:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await bus.settle(self.client, 1)

    async def watch(self) -> None:
        """Call what the services have for their keys after each change from now on, and whenever one may be missed."""
        for service, bucket, key, changed in self.watched:

            async def notified(message, service=service, changed=changed) -> None:
                await self.run(service, message.subject, changed)

            await self.client.subscribe(keyvalue.subject(bucket, key), cb=notified)

    async def missed(self) -> None:
        for service, bucket, key, changed in self.watched:
            await self.run(service, keyvalue.subject(bucket, key), changed)

    async def tick(self, service, seconds: float, work: Callable, is_due: Callable[[], bool] = lambda: True) -> None:
        """Call `work` at the multiples of `seconds` on the loop's clock, so that ticks of one period, and of multiples
        of it, wake an idle process together. After each call it rests at least as long as that has taken, but never
        longer than the period: one that waited for a busy service is not late twice.
        """
        now = asyncio.get_running_loop().time
        while True:
            begun = now()
            if self.client.is_connected and is_due():
                await self.publish(await self.run(service, getattr(work, "__name__", "tick"), work))
            await asyncio.sleep(max(seconds - now() % seconds, min(seconds, now() - begun)))


async def serve(services: Sequence, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until `stop`, then drain: what has arrived is handled, what was returned is sent.

    While the server is unavailable it waits; only messages in flight are lost by that.
    """
    host = _Host(services)
    host.client = await _connected(stop, host.missed)
    if host.client is None:
        return
    opened = [
        _Subscription(host, service, subject, route if isinstance(route, Route) else Route(*route))
        for service in services
        for subject, route in service.subjects.items()
    ]
    tasks: list[asyncio.Task] = []
    try:
        for service in services:
            if hasattr(service, "start"):
                await host.publish(await host.run(service, "start", service.start))
        for subscription in opened:
            await subscription.open(host.client)
            tasks.append(asyncio.create_task(subscription.pump()))
        await host.watch()
        await host.publish((), flush=True)
        for service in services:
            for tick in getattr(service, "ticks", ()):
                tasks.append(asyncio.create_task(host.tick(service, *tick)))
        log.info("serving %s", ", ".join(service.name for service in services))
        ready()
        await _until(stop, tasks)
    finally:
        await _close(host, opened, tasks)


async def _connected(stop: asyncio.Event, again: Callable[[], Awaitable[None]]) -> Client | None:
    logged = False
    while not stop.is_set():
        try:
            return await bus.connect(again)
        except (NatsError, OSError, TimeoutError) as problem:
            if not logged:
                log.warning("message bus: %s; waiting for it", problem or type(problem).__name__)
            logged = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await stop.wait()
    return None


async def _until(stop: asyncio.Event, tasks: list[asyncio.Task]) -> None:
    """Wait for `stop`. When a pump or tick ends by itself that is a bug: the process ends, to be restarted."""
    waiting = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in done - {waiting}:
        task.result()


async def _close(host: _Host, opened: list[_Subscription], tasks: list[asyncio.Task]) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + DRAIN_S
    connected = host.client.is_connected
    ending = [bus.end_interest(host.client, each.inner) for each in opened if each.inner is not None and connected]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            await asyncio.gather(*ending, return_exceptions=True)
    while loop.time() < end and not all(subscription.idle for subscription in opened):
        await asyncio.sleep(0.02)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for service in host.services:
        if hasattr(service, "stop"):
            await host.publish(await host.run(service, "stop", service.stop))
    if connected:
        await host.publish((), flush=True)
    with contextlib.suppress(NatsError, OSError, TimeoutError):
        async with asyncio.timeout(1):
            await host.client.close()
    await loop.run_in_executor(None, host.end_threads)
