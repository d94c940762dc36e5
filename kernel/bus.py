"""NATS: one connection per process, kept by a thread with its own event loop.

Synchronous code calls `publish` (JetStream), `send` and `request` (plain NATS) and `check`; the long-running commands
call `consume`. Key-value buckets are in keyvalue.py, services that subscribe in serve.py. The connection reconnects for
ever; a call that cannot be answered in time raises Fault.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StreamConfig
from nats.js.errors import APIError, NotFoundError

from . import answering, nats_jwt, nats_tls
from .errors import Fault
from .messages import Message

__all__ = ["Client", "NatsError"]
log = logging.getLogger(__name__)

DAY_S = 24 * 3600
RETRY_S = 1
LOG_EVERY_S = 5
PING_S = 10  # two missed ones close the connection to a server that hangs
PENDING = 16 << 20  # bytes buffered while the server is away
_max_payload = 8 << 20


def _address() -> tuple[str, int]:
    parts = urlsplit(settings.NATS_URL)
    return parts.hostname, parts.port


# Ours speaks first; another one may wait for TLS, and refuses anything else.
SERVER = answering.Server("nats", _address, b"" if settings.EMBEDDED["nats"] else b"PING\r\n")
UNAVAILABLE = Message("the message bus is not available; try again later")


@dataclass(frozen=True)
class Stream:
    """A JetStream stream of this platform; `make_stream` creates or updates it."""

    name: str
    subjects: tuple[str, ...]
    max_age_s: int = 7 * DAY_S
    max_bytes: int = 4 << 30
    duplicate_window_s: int = 600


class NoAnswer(Fault):
    """A request was not answered in time, or its subject has no subscriber."""


@dataclass(frozen=True)
class Delivery:
    """One message of a stream: `sequence` is its place in the stream, `message_id` its Nats-Msg-Id, if any."""

    subject: str
    data: bytes
    message_id: str
    sequence: int
    sent: datetime


async def connect() -> Client:
    """Return a new connection with the platform's credentials, which reconnects for ever."""
    options = {"user": settings.NATS_USER, "password": settings.NATS_PASSWORD} if settings.NATS_USER else {}
    if settings.EMBEDDED["nats"]:
        options = {"nkeys_seed_str": nats_jwt.platform().seed.decode(), "tls": nats_tls.context()}
    elif settings.NATS_NKEY_SEED:
        options = {"nkeys_seed": settings.NATS_NKEY_SEED}
    client = nats_tls.client() if settings.EMBEDDED["nats"] else Client()
    await client.connect(
        settings.NATS_URL,
        name=f"platform-{os.getpid()}",
        connect_timeout=3,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.5,
        allow_reconnect=True,
        ping_interval=PING_S,
        pending_size=PENDING,
        error_cb=_log_error,
        **options,
    )
    global _max_payload
    _max_payload = client.max_payload
    return client


async def settle(client: Client, timeout_s: float = 2) -> None:
    """Return once the server has processed everything that was subscribed and published before.

    It flushes twice, since the library writes a flush's PING before what it has still buffered: after the first answer
    all has been written, after the second the server has read it.
    """
    for _ in range(2):
        await client.flush(timeout=max(1, int(timeout_s)))


def max_payload() -> int:
    """Return how many bytes one message may have: the server's limit once this process was connected, else the usual
    one.
    """
    return _max_payload


_logged: dict[str, float] = {}


async def _log_error(problem: Exception) -> None:
    """Log each kind of error every LOG_EVERY_S seconds at most: a slow consumer causes one for every message."""
    kind = f"{type(problem).__name__} {getattr(problem, 'subject', '')}"
    if time.monotonic() - _logged.get(kind, float("-inf")) >= LOG_EVERY_S:
        _logged[kind] = time.monotonic()
        log.warning("message bus: %s", problem or kind)


async def make_stream(client: Client, stream: Stream) -> None:
    """Create the stream, or update one with another configuration."""
    jetstream = client.jetstream()
    config = StreamConfig(
        name=stream.name,
        subjects=list(stream.subjects),
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        max_age=stream.max_age_s,
        max_bytes=stream.max_bytes,
        duplicate_window=stream.duplicate_window_s,
    )
    try:
        await jetstream.stream_info(stream.name)
        await jetstream.update_stream(config)
    except NotFoundError:
        await jetstream.add_stream(config)


class _Connection:
    """The process's shared connection, used from any thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.client: Client | None = None
        self.lock: asyncio.Lock | None = None
        threading.Thread(target=self._run, name="message-bus", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        """Close the connection when the process ends, so that the loop does not reconnect during shutdown."""
        if self.client is not None and os.getpid() == _shared_pid:
            with contextlib.suppress(Exception):  # the process ends anyway
                asyncio.run_coroutine_threadsafe(self.client.close(), self.loop).result(2)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def ready(self) -> Client:
        if self.lock is None:
            self.lock = asyncio.Lock()
        async with self.lock:
            if self.client is None or self.client.is_closed:
                self.client = await connect()
        if not self.client.is_connected:
            raise Fault(UNAVAILABLE)
        return self.client

    def call(self, work: Callable[[Client], Awaitable], timeout_s: float):
        """Run the coroutine with the shared connection and return its result. Raises Fault. For keyvalue.py."""

        async def run():
            return await work(await self.ready())

        if SERVER.hangs:
            raise Fault(UNAVAILABLE)
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(run(), timeout_s), self.loop)
        try:
            return SERVER.result(future, timeout_s + 1)
        except (NatsError, APIError, OSError, TimeoutError) as problem:
            raise Fault(UNAVAILABLE) from problem


_shared: _Connection | None = None
_shared_pid = 0
_shared_lock = threading.Lock()


def _connection() -> _Connection:
    """Return the shared connection: created on first use and after a fork, since threads and loops
    do not survive one.
    """
    global _shared, _shared_pid
    with _shared_lock:
        if _shared is None or _shared_pid != os.getpid():
            _shared, _shared_pid = _Connection(), os.getpid()
        return _shared


def publish(messages: list[tuple[str, bytes, str]], timeout_s: float = 5) -> None:
    """Publish (subject, body, message id) to JetStream, in order; return once each is stored. Raises Fault."""

    async def work(client: Client) -> None:
        jetstream = client.jetstream()
        acks = [
            await jetstream.publish_async(subject, data, headers={"Nats-Msg-Id": message_id})
            for subject, data, message_id in messages
        ]
        await asyncio.gather(*acks)

    _connection().call(work, timeout_s)


def send(messages: Sequence[tuple[str, bytes]], timeout_s: float = 5) -> None:
    """Publish (subject, body) as plain messages, in order; return once the server has them. Raises Fault."""

    async def work(client: Client) -> None:
        for subject, data in messages:
            await client.publish(subject, data)
        await settle(client, timeout_s)

    _connection().call(work, timeout_s)


def request(subject: str, data: bytes, timeout_s: float) -> bytes:
    """Return the first answer to a plain request. Raises NoAnswer; Fault when the server is away."""

    async def work(client: Client) -> bytes:
        try:
            return (await client.request(subject, data, timeout=timeout_s)).data
        except NoRespondersError as problem:
            raise NoAnswer("%(subject)s: no subscriber", subject=subject) from problem
        except NatsTimeout as problem:
            raise NoAnswer(
                "%(subject)s: no answer within %(seconds)g s", subject=subject, seconds=timeout_s
            ) from problem

    return _connection().call(work, timeout_s + 3)


def call(work: Callable[[Client], Awaitable], timeout_s: float = 5):
    """Run the coroutine with the shared connection and return its result. Raises Fault. For keyvalue.py."""
    return _connection().call(work, timeout_s)


def check(timeout_s: float = 2) -> None:
    """Raise Fault unless the server answers, with JetStream enabled."""

    async def work(client: Client) -> None:
        await client.jetstream().account_info()

    _connection().call(work, timeout_s)


def ensure_streams(streams: list[Stream], timeout_s: float = 10) -> None:
    """Create or update the streams. Raises Fault."""

    async def work(client: Client) -> None:
        for stream in streams:
            await make_stream(client, stream)

    _connection().call(work, timeout_s)


def is_consumed(stream: Stream, durable: str, subject: str, since: datetime, timeout_s: float = 5) -> bool:
    """Return whether the durable consumer has acknowledged all messages on the subject sent after `since`. Raises
    Fault.
    """

    async def work(client: Client) -> bool:
        jetstream = client.jetstream()
        try:
            last = await jetstream.get_last_msg(stream.name, subject)
        except NotFoundError:
            return True
        if last.time < since:
            return True
        try:
            info = await jetstream.consumer_info(stream.name, durable)
        except NotFoundError:
            return False
        return info.ack_floor is not None and info.ack_floor.stream_seq >= last.seq

    return _connection().call(work, timeout_s)


async def consume(
    stream: Stream,
    durable: str,
    handle: Callable[[list[Delivery]], Awaitable[None]],
    stop: asyncio.Event,
    idle: Callable[[], Awaitable[None]],
    batch: int = 500,
) -> None:
    """Pull batches for the durable consumer until `stop`; acknowledge a batch once `handle` has returned.

    When `handle` raises, the whole batch is delivered again (at least once), so `handle` must be idempotent. `idle`
    runs at least once a second. When the server or the consumer is lost, both are restored.
    """
    while not stop.is_set():
        client = None
        try:
            client = await connect()
            await make_stream(client, stream)
            config = ConsumerConfig(
                durable_name=durable, ack_policy=AckPolicy.EXPLICIT, ack_wait=10, max_ack_pending=10 * batch
            )
            pull = await client.jetstream().pull_subscribe("", durable, stream=stream.name, config=config)
            while not stop.is_set():
                await idle()
                try:
                    messages = await pull.fetch(batch, timeout=1)
                except TimeoutError:  # asyncio's own, which the client may raise as well
                    continue
                await _handle(messages, handle)
                await client.flush()
        except (NatsError, APIError, OSError, TimeoutError) as problem:
            log.warning("stream %s: %s; trying again", stream.name, problem or type(problem).__name__)
            await asyncio.sleep(1)
        finally:
            if client is not None:
                await client.close()


async def answer(
    subject: str, queue: str, handle: Callable[[bytes], Awaitable[bytes | None]], stop: asyncio.Event
) -> None:
    """Answer requests on a subject until `stop`; where `handle` returns None no answer is sent."""
    while not stop.is_set():
        client = None
        try:
            client = await connect()

            async def respond(message) -> None:
                data = await handle(message.data)
                if data is not None and message.reply:
                    await message.respond(data)

            await client.subscribe(subject, queue, cb=respond)
            await stop.wait()
        except (NatsError, OSError, TimeoutError) as problem:
            log.warning("%s: %s; trying again", subject, problem or type(problem).__name__)
            await asyncio.sleep(1)
        finally:
            if client is not None:
                await client.close()


async def _handle(messages: list, handle: Callable[[list[Delivery]], Awaitable[None]]) -> None:
    """Acknowledge the messages once they are handled; have them delivered again when that fails."""
    try:
        await handle([_delivery(message) for message in messages])
    except Exception:  # whatever it is, the batch is delivered again
        log.exception("a batch of %s messages failed and will be delivered again", len(messages))
        await asyncio.gather(*(message.nak(delay=RETRY_S) for message in messages))
    else:
        await asyncio.gather(*(message.ack() for message in messages))


def _delivery(message) -> Delivery:
    meta = message.metadata
    return Delivery(
        subject=message.subject,
        data=message.data,
        message_id=(message.headers or {}).get("Nats-Msg-Id", ""),
        sequence=meta.sequence.stream,
        sent=meta.timestamp,
    )
