"""One look at the database for all websockets of a process that show the same job. Used by jobs.consumers.

A wake carries nothing: it says "look again". With hundreds of browsers on one job, one listener per process asks once
and hands the new rows to each, in place of hundreds that ask the same. A lost wake costs seconds: reconcile repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer

from accounts.models import State as Active
from accounts.models import User
from mlp.kernel.after_commit import group

from .models import Job, Metrics

log = logging.getLogger(__name__)

CHUNK = 1000
QUIET_S = 0.02  # between two looks, so that a burst of wakes is one look
AGAIN_S = 300.0  # without any wake: joins the group anew, which forgets members after a day, and looks
RETRY_S = 1.0

# The feeds of each event loop: a process has one, tests have many.
_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Feed]] = WeakKeyDictionary()


class Member(Protocol):
    """What a feed needs of a websocket: how far it is, whose it is, whether it still reads by itself."""

    last: int
    caller_id: int
    behind: bool

    async def take(self, rows: list[Metrics], ended: bool) -> None: ...

    async def refuse(self) -> None: ...


async def join(job_id: int, member: Member) -> Feed:
    """The process's feed of the job, with the member in it: it hears of every wake from now on."""
    feeds = _feeds.setdefault(asyncio.get_running_loop(), {})
    feed = feeds.get(job_id)
    if feed is None:
        feed = feeds[job_id] = Feed(job_id)
    feed.members.add(member)
    await feed.listening.wait()
    return feed


def read(job_id: int, after: int) -> tuple[list[Metrics], bool]:
    """(the next rows, whether the job had ended before they were read and these are the last)."""
    job = Job.objects.filter(pk=job_id).first()
    rows = list(Metrics.objects.filter(job_id=job_id, seq__gt=after)[:CHUNK])
    return rows, (job is None or job.has_ended) and len(rows) < CHUNK


class Feed:
    def __init__(self, job_id: int):
        self.job_id = job_id
        self.members: set[Member] = set()
        self.listening = asyncio.Event()
        self.woken = asyncio.Event()
        self.tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._work())]

    def leave(self, member: Member) -> None:
        self.members.discard(member)
        if not self.members:
            _feeds.get(asyncio.get_running_loop(), {}).pop(self.job_id, None)
            for task in self.tasks:
                task.cancel()

    async def _listen(self) -> None:
        """Turns messages of the channel layer into `woken`; begins anew when the layer has failed."""
        layer = get_channel_layer()
        while True:
            channel = None
            try:
                channel = await layer.new_channel()
                await layer.group_add(group("job", self.job_id), channel)
                self.listening.set()
                self.woken.set()  # what happened while nobody listened
                while True:
                    await layer.receive(channel)
                    self.woken.set()
            except asyncio.CancelledError:
                if channel is not None:
                    with contextlib.suppress(Exception):  # ending anyway; the group forgets it by itself
                        await layer.group_discard(group("job", self.job_id), channel)
                raise
            except Exception as problem:
                log.warning("feed of job %s: %s; trying again", self.job_id, problem or type(problem).__name__)
                self.listening.set()  # who waits is served by the looks
                await asyncio.sleep(RETRY_S)

    async def _work(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.woken.wait(), AGAIN_S)
            self.woken.clear()
            try:
                await self._look()
            except Exception:  # the database, say: the next wake finds it back
                log.exception("feed of job %s", self.job_id)
                await asyncio.sleep(RETRY_S)
                self.woken.set()
            await asyncio.sleep(QUIET_S)

    async def _look(self) -> None:
        members = [member for member in self.members if not member.behind]
        if not members:
            return
        rows, ended, active = await database_sync_to_async(self._read)(
            min(member.last for member in members), {member.caller_id for member in members}
        )
        for member in members:
            try:
                if member.caller_id in active:
                    await member.take(rows, ended)
                else:
                    await member.refuse()  # de-registered meanwhile
            except Exception:  # one that has just gone must not keep the others from their news
                log.exception("feed of job %s: a websocket could not be served", self.job_id)
                self.leave(member)
        if len(rows) == CHUNK:
            self.woken.set()

    def _read(self, after: int, callers: set[int]) -> tuple[list[Metrics], bool, set[int]]:
        active = set(User.objects.filter(pk__in=callers, state=Active.ACTIVED).values_list("pk", flat=True))
        return *read(self.job_id, after), active
