"""Consuming a JetStream stream: at least once, in batches and in its order (in_order.py), by the one process that owns
the durable consumer.

A stream that says how many messages of a subject may wait (`Stream.most_waiting`) holds only what is not consumed yet:
`consume` removes the rest, so that a sender's room is never taken by what it sent before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, NotFoundError

from . import bus, disk
from .bus import Client, NatsError, Stream, close_stream, connect, make_stream
from .in_order import Handle, Reader

log = logging.getLogger(__name__)

PULL_S = 5  # for which a pull waits at the server for the first message
IDLE_S = 1.0  # between two calls of `idle` meanwhile
REMOVE_EVERY_S = 0.2
LOW_S = 1.0  # between two looks at a disk that is nearly full
MANY = 100  # consumed messages that are removed at once


async def consume(
    stream: Stream,
    durable: str,
    handle: Handle,
    stop: asyncio.Event,
    idle: Callable[[], Awaitable[None]],
    crowded: Callable[[str], Awaitable[None]] | None = None,
    batch: int = 500,
) -> None:
    """Pull batches for the durable consumer until `stop`; acknowledge a batch once `handle` has returned.

    When `handle` raises, the whole batch is delivered again (at least once), so `handle` must be idempotent. `idle`
    runs at least once a second. `crowded` is called with a subject that has no room left, after its messages have
    been handled. While the disk is nearly full (kernel.disk), the stream takes no more and nothing is pulled. When the
    server or the consumer is lost, both are restored.
    """
    while not stop.is_set():
        client = pulls = None
        try:
            client = await connect()
            await make_stream(client, stream)
            config = ConsumerConfig(
                durable_name=durable, ack_policy=AckPolicy.EXPLICIT, ack_wait=10, max_ack_pending=10 * batch
            )
            pull = await client.jetstream().pull_subscribe("", durable, stream=stream.name, config=config)
            floor = (await pull.consumer_info()).ack_floor
            reader = Reader(client, stream, handle, floor.stream_seq if floor else 0)
            room, gate = Room(client, stream, durable, batch), Gate(client, stream)
            pulls = Pulls(client, pull, batch)
            while not stop.is_set():
                await idle()
                await room.make()
                if await gate.is_shut():  # what waits is in the stream, and stays there
                    await pulls.end()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOW_S):
                            await stop.wait()
                    continue
                messages = await pulls.next(stop)
                if not messages:
                    continue
                full = await room.full_subjects(messages)
                await reader.take(messages)
                await client.flush()
                room.consumed += len(messages)
                for subject in full if crowded is not None else ():
                    await crowded(subject)
        except (NatsError, APIError, OSError, TimeoutError) as problem:
            log.warning("stream %s: %s; trying again", stream.name, problem or type(problem).__name__)
            await asyncio.sleep(1)
        finally:
            if pulls is not None:
                await pulls.end()
            if client is not None:
                await client.close()


class Pulls:
    """Pulls batches for a consumer. A pull waits at the server much longer than `next`: one a second, of which each is
    several messages, would cost an idle platform more than all else that it does.
    """

    def __init__(self, client: Client, subscription, batch: int):
        self.client, self.subscription, self.batch = client, subscription, batch
        self.pull: asyncio.Task | None = None
        self.reconnects = 0

    async def next(self, stop: asyncio.Event) -> list:
        """Return the next messages as soon as there are some, none after IDLE_S and once `stop` is set. Raises what the
        client does.
        """
        if self.pull is None:
            self.reconnects = self.client.stats["reconnects"]
            self.pull = asyncio.create_task(self.subscription.fetch(self.batch, timeout=PULL_S))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((self.pull, stopped), timeout=IDLE_S, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not self.pull.done():
            if self.client.stats["reconnects"] != self.reconnects:  # the server that knew of it is gone
                await self.end()
            return []
        pull, self.pull = self.pull, None
        try:
            return pull.result()
        except TimeoutError:  # asyncio's own, which the client may raise as well
            return []

    async def end(self) -> None:
        """Give the pull up. What it has got, the server delivers again."""
        if self.pull is not None:
            self.pull.cancel()
            await asyncio.gather(self.pull, return_exceptions=True)
            self.pull = None


class Backlog(NamedTuple):
    """What of a stream its consumer has not acknowledged: how many messages, the age of the oldest, bytes in all."""

    messages: int
    age_s: float
    size: int


def backlog(stream: str, durable: str, timeout_s: float) -> Backlog:
    """Return what waits in the stream. Raises Fault, also while there is no such stream or consumer."""

    async def work(client: Client) -> Backlog:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(stream)).state
        info = await jetstream.consumer_info(stream, durable)
        waiting = (info.num_pending or 0) + (info.num_ack_pending or 0)
        done = info.ack_floor.stream_seq if info.ack_floor else 0
        age_s = 0.0
        if waiting:
            try:
                oldest = await jetstream.get_msg(stream, max(done + 1, state.first_seq))
                age_s = max(0.0, (datetime.now(UTC) - oldest.time).total_seconds())
            except NotFoundError:  # consumed meanwhile
                pass
        return Backlog(waiting, age_s, state.bytes)

    return bus.call(work, timeout_s)


class Gate:
    """Keeps a stream as it is while the disk is nearly full: senders are refused, as by one that is crowded."""

    def __init__(self, client: Client, stream: Stream):
        self.client, self.stream = client, stream
        self.shut = False

    async def is_shut(self) -> bool:
        low = disk.is_low()
        if low != self.shut:
            await (close_stream if low else make_stream)(self.client, self.stream)
            self.shut = low
        return low


class Room:
    """The room in a stream whose subjects are limited: removes what is consumed, and finds the subjects that are full.

    Does nothing for other streams.
    """

    def __init__(self, client: Client, stream: Stream, durable: str, batch: int):
        self.client, self.stream, self.durable, self.batch = client, stream, durable, batch
        self.consumed = 1  # messages that may be removed: perhaps some of an earlier process
        self.removed_at = 0.0

    async def make(self) -> None:
        """Remove what is consumed: at once when it is much, else after a while."""
        waited, many = time.monotonic() - self.removed_at, min(MANY, self.stream.most_waiting // 2)
        if not self.stream.most_waiting or not self.consumed or (self.consumed < many and waited < REMOVE_EVERY_S):
            return
        jetstream = self.client.jetstream()
        info = await jetstream.consumer_info(self.stream.name, self.durable)
        floor = info.ack_floor.stream_seq if info.ack_floor is not None else 0
        if floor:
            await jetstream.purge_stream(self.stream.name, seq=floor + 1)
        self.consumed = info.num_ack_pending or 0  # the last acknowledgements may be on their way
        self.removed_at = time.monotonic()

    async def full_subjects(self, messages: list) -> list[str]:
        """Return the subjects of a batch that have no room left."""
        if not self.stream.most_waiting:
            return []
        jetstream, full = self.client.jetstream(), []
        for subject, count in Counter(message.subject for message in messages).items():
            if 2 * count >= min(self.batch, self.stream.most_waiting):
                info = await jetstream.stream_info(self.stream.name, subjects_filter=subject)
                waiting = (info.state.subjects or {}).get(subject, 0)
                if waiting >= self.stream.most_waiting:
                    full.append(subject)
        return full
