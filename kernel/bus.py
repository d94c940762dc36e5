"""NATS: one connection per process, kept by a thread with its own event loop.

Synchronous code calls `publish` (JetStream), `send` and `request` (plain NATS) and `check`. Streams are consumed by
consuming.py, key-value buckets are in keyvalue.py, services that subscribe in serve.py. The connection reconnects for
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

from . import nats_import  # noqa: F401 (before anything of nats)

# isort: split
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig
from nats.js.errors import APIError, NotFoundError

from . import liveness, nats_jwt, nats_tls, sanitize
from .errors import Fault
from .messages import Message

__all__ = ["Client", "NatsError"]
log = logging.getLogger(__name__)

DAY_S = 24 * 3600
RETRY_S = 1
LOG_EVERY_S = 5
PING_S = 10  # two missed ones close the connection to a server that hangs
PENDING = 16 << 20  # bytes buffered while the server is unavailable
HEADERS = 4 << 10  # bytes of a message's headers, which count in its size
FULL = 10077  # the code of JetStream's refusal where a subject or the stream is full
ROOM_S = 0.05  # between two tries to publish where there was no room
_max_payload = 8 << 20


def _address() -> tuple[str, int]:
    parts = urlsplit(settings.NATS_URL)
    return parts.hostname, parts.port


# Ours speaks first; another one may wait for TLS, and refuses anything else.
SERVER = liveness.Server("nats", _address, b"" if settings.EMBEDDED["nats"] else b"PING\r\n")
CROWDED = Message("reported faster than it can be stored; try again later")
UNAVAILABLE = Message("the message bus is not available; try again later")


@dataclass(frozen=True)
class Stream:
    """A JetStream stream of this platform; `make_stream` creates or updates it."""

    name: str
    subjects: tuple[str, ...]
    max_age_s: int = 7 * DAY_S
    max_bytes: int = 4 << 30
    duplicate_window_s: int = 600
    # Where it is set, a stream never drops what it has acknowledged: messages beyond this number on one subject, and
    # beyond max_bytes, are refused until kernel.consuming has removed some. Senders on other subjects are not affected.
    most_waiting: int = 0
    most_payload: int = 0  # bytes of one message


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


async def connect(again: Callable[[], Awaitable[None]] | None = None) -> Client:
    """Return a new connection with the platform's credentials, which reconnects for ever; `again` is called each time
    that it has.
    """
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
        reconnected_cb=again,
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


async def end_interest(client: Client, subscription: Subscription) -> None:
    """Ask the server for no more of the subscription's messages; return once those it had sent are in its callback.

    The library's own `drain` may ask for its answer before the server reads that the interest ended, and its
    `unsubscribe` forgets what it has received.
    """
    await client._send_unsubscribe(subscription._id)
    await settle(client)
    await subscription.drain()


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
    jetstream, config = client.jetstream(), _config(stream)
    try:
        await jetstream.stream_info(stream.name)
        await jetstream.update_stream(config)
    except NotFoundError:
        await jetstream.add_stream(config)


async def close_stream(client: Client, stream: Stream) -> None:
    """Let the stream take no more than it has; `make_stream` opens it again. For those that drop no message."""
    if stream.most_waiting:
        jetstream = client.jetstream()
        size = (await jetstream.stream_info(stream.name)).state.bytes
        await jetstream.update_stream(_config(stream).evolve(max_bytes=max(1, size)))


def _config(stream: Stream) -> StreamConfig:
    return StreamConfig(
        name=stream.name,
        subjects=list(stream.subjects),
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.NEW if stream.most_waiting else DiscardPolicy.OLD,
        discard_new_per_subject=bool(stream.most_waiting),
        max_msgs_per_subject=stream.most_waiting or -1,
        max_msg_size=stream.most_payload + HEADERS if stream.most_payload else -1,
        max_age=stream.max_age_s,
        max_bytes=stream.max_bytes,
        duplicate_window=stream.duplicate_window_s,
    )


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
            async with asyncio.timeout(timeout_s):
                return await work(await self.ready())

        if SERVER.hangs:
            raise Fault(UNAVAILABLE)
        future = asyncio.run_coroutine_threadsafe(run(), self.loop)
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
    """Publish (subject, body, message id) to JetStream, in order; return once each is stored. Where the stream has no
    room it waits. Raises Fault.
    """

    async def work(client: Client) -> None:
        left, end = messages, time.monotonic() + 0.8 * timeout_s
        while left := await _refused(client, left):
            if time.monotonic() > end:
                raise Fault(CROWDED)
            await asyncio.sleep(ROOM_S)

    _connection().call(work, timeout_s)


async def _refused(client: Client, messages: list[tuple[str, bytes, str]]) -> list[tuple[str, bytes, str]]:
    """Publish the messages, wait for the answer to each, and return those for which the stream has no room."""
    inbox, answers, complete = client.new_inbox(), {}, asyncio.Event()

    async def take(message) -> None:
        answers[int(message.subject.rpartition(".")[2])] = message
        if len(answers) == len(messages):
            complete.set()

    subscription = await client.subscribe(f"{inbox}.*", cb=take)
    try:
        for number, (subject, data, message_id) in enumerate(messages):
            await client.publish(subject, data, f"{inbox}.{number}", {"Nats-Msg-Id": message_id})
        await complete.wait()
    finally:
        await subscription.unsubscribe()
    return [message for number, message in enumerate(messages) if _is_refused(answers[number])]


def _is_refused(answer) -> bool:
    """Return whether JetStream has no room for the message. Raises Fault when it was not stored for another reason."""
    outcome = sanitize.read_json(answer.data) if answer.data else {"error": {}}  # empty: there is no such stream
    if "error" in outcome and outcome["error"].get("err_code") != FULL:
        log.warning("message bus: not stored: %s", outcome["error"].get("description", "there is no stream"))
        raise Fault(UNAVAILABLE)
    return "error" in outcome


def send(messages: Sequence[tuple[str, bytes]], timeout_s: float = 5) -> None:
    """Publish (subject, body) as plain messages, in order; return once the server has them. Raises Fault."""

    async def work(client: Client) -> None:
        for subject, data in messages:
            await client.publish(subject, data)
        await settle(client, timeout_s)

    _connection().call(work, timeout_s)


def request(subject: str, data: bytes, timeout_s: float) -> bytes:
    """Return the first answer to a plain request. Raises NoAnswer; Fault when the server is unavailable."""

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


def is_connected() -> bool:
    """Return whether the shared connection stands, without a query: one to a server that hangs may still stand."""
    client = _connection().client
    return client is not None and client.is_connected and not SERVER.hangs


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
