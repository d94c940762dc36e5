"""Copies of JetStream streams: its own snapshots, with messages, times, numbers and consumers.

JetStream sends a snapshot as a sequence of chunks, and takes it back in the same form. The protocol is described in the
NATS documentation, "JetStream wire API reference" ($JS.API.STREAM.SNAPSHOT and RESTORE); nats-py has no call for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Container
from pathlib import Path

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from . import bus

ANSWER_S = 60
CONNECT_S = 20
COMPARED = ("messages", "last_seq")  # the number of the first is another one in a stream that is empty
CHUNK = 128 << 10


class NotCopied(Exception):
    """A stream could not be copied or made again; the message says why."""


def save(
    folder: Path, first: str, first_done: Callable[[], None], only: Container[str] | None = None
) -> dict[str, dict]:
    """Write a snapshot of each stream, or of those in `only`, to the folder; return stream -> configuration and state.

    The stream `first` is copied before the others, and `first_done` is called then. Raises NotCopied.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def work(client: Client) -> dict[str, dict]:
        names = [info.config.name for info in await client.jetstream().streams_info()]
        names = [name for name in names if only is None or name in only]
        saved = {}
        for name in sorted(names, key=lambda name: (name != first, name)):
            if name != first:
                first_done()
            saved[name] = await _save(client, name, folder / name)
        first_done()
        return saved

    return _run(work)


async def _save(client: Client, name: str, path: Path) -> dict:
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        request = {"deliver_subject": inbox, "no_consumers": False, "chunk_size": CHUNK}
        reply = await _ask(client, f"$JS.API.STREAM.SNAPSHOT.{name}", request)
        with path.open("wb") as file:
            while True:
                message = await subscription.next_msg(ANSWER_S)
                if not message.data:
                    _check_end(name, message.headers or {})
                    break
                file.write(message.data)
                if message.reply:
                    await client.publish(message.reply)  # the server waits for this after some chunks
    finally:
        await subscription.unsubscribe()
    return {"config": reply["config"], "state": reply["state"]}


def _check_end(name: str, headers: dict) -> None:
    status = headers.get("Status", "")
    if status and not status.startswith("2"):
        raise NotCopied(f"the stream {name} could not be copied: {status} {headers.get('Description', '')}")


def load(folder: Path, saved: dict[str, dict]) -> None:
    """Make the streams again from their snapshots; those that exist are replaced. Raises NotCopied."""

    async def work(client: Client) -> None:
        for name, about in saved.items():
            with contextlib.suppress(NotFoundError):
                await client.jetstream().delete_stream(name)
            await _load(client, name, folder / name, about)

    _run(work)


async def _load(client: Client, name: str, path: Path, about: dict) -> None:
    answer = await _ask(client, f"$JS.API.STREAM.RESTORE.{name}", about)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            await client.request(answer["deliver_subject"], chunk, timeout=ANSWER_S)
    end = await client.request(answer["deliver_subject"], b"", timeout=ANSWER_S)
    _refuse(name, json.loads(end.data or b"{}"))


def states() -> dict[str, dict]:
    """Return stream -> COMPARED."""

    async def work(client: Client) -> dict[str, dict]:
        infos = await client.jetstream().streams_info()
        return {
            info.config.name: {
                "messages": info.state.messages,
                "last_seq": info.state.last_seq,
            }
            for info in infos
        }

    return _run(work)


async def _ask(client: Client, subject: str, request: dict) -> dict:
    answer = await client.request(subject, json.dumps(request).encode(), timeout=ANSWER_S)
    reply = json.loads(answer.data)
    _refuse(subject.rpartition(".")[2], reply)
    return reply


def _refuse(name: str, answer: dict) -> None:
    if "error" in answer:
        raise NotCopied(f"the stream {name}: {answer['error'].get('description', answer['error'])}")


def _run(work: Callable[[Client], Awaitable]):
    async def whole():
        async with asyncio.timeout(CONNECT_S):
            client = await bus.connect()
        try:
            return await work(client)
        finally:
            await client.close()

    try:
        return asyncio.run(whole())
    except (NatsError, OSError, TimeoutError) as problem:
        raise NotCopied(f"the message bus does not answer: {problem or type(problem).__name__}") from problem
