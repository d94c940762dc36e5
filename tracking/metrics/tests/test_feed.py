"""The tasks that serve the readers of a job's metrics in one process."""

from __future__ import annotations

import asyncio

from mlp.tests.links import eventually
from mlp.tests.patience import LIMIT_S
from tracking.metrics.feed import Feed


def test_a_feed_without_readers_ends_also_when_it_is_woken_at_that_moment(monkeypatch):
    """Its task would go on for ever, and with it a query every few seconds."""
    looked = []

    async def poll(self):
        looked.append(self)

    monkeypatch.setattr(Feed, "_look", poll)
    monkeypatch.setattr(Feed, "_listen", lambda self: asyncio.sleep(3600))
    monkeypatch.setattr("tracking.metrics.feed.QUIET_S", 0)

    async def work() -> bool:
        feed, reader = Feed(1), object()
        feed.readers.add(reader)
        feed.poll()
        await eventually(lambda: looked)
        for _ in range(5):  # until it waits for the next message
            await asyncio.sleep(0)
        feed.poll()
        feed.leave(reader)
        await asyncio.wait(feed.tasks, timeout=LIMIT_S)
        return all(task.done() for task in feed.tasks)

    assert asyncio.run(work())
