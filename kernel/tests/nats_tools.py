"""Helpers for tests of the message bus: services on a thread, and a peer that plays the other side."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

from kernel import bus
from kernel.serve import serve
from mlp.tests.patience import LIMIT_S

LAST = b"last"


class Peer:
    """The other side of the bus: subscribes, publishes, requests. Received messages are kept by subject, in order."""

    def __init__(self, *subjects: str):
        self.heard: dict[str, list[bytes]] = {subject: [] for subject in subjects}
        self.answers: dict[str, Callable[[bytes], bytes | None]] = {}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.client = self._do(bus.connect())
        for subject in subjects:
            self._do(self.client.subscribe(subject, cb=self._take))
        self._do(bus.settle(self.client, LIMIT_S))

    def _do(self, work, timeout: float = LIMIT_S):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    async def _take(self, message) -> None:
        self.heard.setdefault(message.subject, []).append(message.data)
        answer = self.answers.get(message.subject)
        if answer is not None and message.reply:
            data = answer(message.data)
            if data is not None:
                await self.client.publish(message.reply, data)

    def listen(self, subject: str, queue: str = "", answer: Callable[[bytes], bytes | None] | None = None) -> None:
        self.heard.setdefault(subject, [])
        if answer is not None:
            self.answers[subject] = answer
        self._do(self.client.subscribe(subject, queue, cb=self._take))
        self._do(bus.settle(self.client, LIMIT_S))

    def publish(self, subject: str, data: bytes) -> None:
        self._do(self.client.publish(subject, data))
        self._do(bus.settle(self.client, LIMIT_S))

    def ask(self, subject: str, data: bytes, timeout: float = LIMIT_S) -> bytes:
        return self._do(self.client.request(subject, data, timeout=timeout)).data

    def wait(self, subject: str, count: int = 1, timeout: float = LIMIT_S) -> list[bytes]:
        """Return the messages of the subject once there are that many."""
        until(lambda: len(self.heard[subject]) >= count, timeout, lambda: f"{subject}: {self.heard[subject]}")
        return self.heard[subject]

    def until_now(self, subject: str) -> list[bytes]:
        """Return the messages of the subject that came before one that is published now, which is wrong for all."""
        self.publish(subject, LAST)
        until(lambda: LAST in self.heard[subject])
        self.heard[subject].remove(LAST)
        return self.heard[subject]

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._do(self.client.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(LIMIT_S)


def until(true: Callable[[], object], timeout: float = LIMIT_S, words: Callable[[], str] = str):
    """Wait for the condition to become true; return its value."""
    end, pause = time.monotonic() + timeout, 0.01
    while time.monotonic() < end:
        value = true()
        if value:
            return value
        time.sleep(pause)
        pause = min(1.2 * pause, 0.05)  # a look may cost what it waits for: processor time
    raise AssertionError(f"not within {timeout} s: {words()}")


class Served:
    """Services that a thread runs, as `manage.py aiops` does."""

    def __init__(self, *services):
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.failed: BaseException | None = None
        self.stop_event = asyncio.Event()
        self.services = services
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(serve(self.services, self.stop_event, self.ready.set))
        except BaseException as problem:
            self.failed = problem

    def __enter__(self):
        self.thread.start()
        return self

    def wait(self):
        assert self.ready.wait(LIMIT_S), self.failed
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stop_event.set)
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()
        if self.failed is not None:
            raise self.failed
