"""One look at the database for all websockets of a process that show the same job. Used by jobs.metrics.consumers.

A wake carries nothing: it says "look again". With hundreds of browsers on one job, one listener per process asks once
and hands the new rows to each, in place of hundreds that ask the same. A lost wake costs seconds: reconcile repeats it.
A job that has ended is over for a websocket only when all that it had sent is stored: until then the feed looks again
and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import Protocol
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from django.utils import timezone

from accounts.auth import Entry, living
from jobs.models import Job, Metrics, State
from kernel.after_commit import group
from kernel.errors import Fault

from . import recording

log = logging.getLogger(__name__)

CHUNK = 1000
QUIET_S = 0.02  # between two looks, so that a burst of wakes is one look
AGAIN_S = 300.0  # without any wake: joins the group anew, which forgets members after a day, and looks
RETRY_S = 1.0
ENDING_S = 0.1  # between two looks at a job that has ended, whose last rows may be on their way; slower with each look
PATIENCE = timedelta(minutes=1)  # with rows of an ended job while the message bus, which has them, is away

# The feeds of each event loop: a process has one, tests have many.
_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Feed]] = WeakKeyDictionary()


class Member(Protocol):
    """What a feed needs of a websocket: how far it is, what let it in, whether it still reads by itself."""

    last: int
    entry: Entry
    behind: bool

    async def take(self, rows: list[Metrics], ended: bool) -> None: ...

    async def refuse(self) -> None:
        """It may not see the job any more: leaves the feed, and is given nothing from now on."""
        ...


async def join(job_id: int, member: Member) -> Feed:
    """The process's feed of the job, with the member in it: it hears of every wake from now on."""
    feeds = _feeds.setdefault(asyncio.get_running_loop(), {})
    feed = feeds.get(job_id)
    if feed is None:
        feed = feeds[job_id] = Feed(job_id)
    feed.members.add(member)
    await feed.listening.wait()
    return feed


async def read(job_id: int, after: int) -> tuple[list[Metrics], bool, bool]:
    """(the next rows, whether they are the last that there will be, whether the job has ended but more may come)."""
    rows, job = await database_sync_to_async(_read)(job_id, after)
    if job is not None and not job.has_ended:
        return rows, False, False
    # Not in the one thread that all of this process share for the database: the message bus may be slow to answer.
    if job is not None and not await asyncio.to_thread(_all_told, job):
        return rows, False, True
    rows, _job = await database_sync_to_async(_read)(job_id, after)
    return rows, len(rows) < CHUNK, False


def _read(job_id: int, after: int) -> tuple[list[Metrics], Job | None]:
    """The job as it was before the rows were read; None when it is gone."""
    job = Job.objects.select_related("user").filter(pk=job_id).first()
    return list(Metrics.objects.filter(job_id=job_id, seq__gt=after)[:CHUNK]), job


def _all_told(job: Job) -> bool:
    try:
        return job.state == State.DELETING or recording.all_told(job)
    except Fault:
        return job.ended is None or timezone.now() - job.ended > PATIENCE


class Feed:
    def __init__(self, job_id: int):
        self.job_id = job_id
        self.members: set[Member] = set()
        self.listening = asyncio.Event()
        self.woken = asyncio.Event()
        self.owner: int | None = None  # of the job, for good
        self.ending = 0.0  # seconds until the next look at a job that is ending
        self.tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._work())]

    def leave(self, member: Member) -> None:
        self.members.discard(member)
        if not self.members:
            _feeds.get(asyncio.get_running_loop(), {}).pop(self.job_id, None)
            for task in self.tasks:
                task.cancel()

    def look(self) -> None:
        """Has it look soon: for a member that has just read by itself, and may have found the job ending."""
        self.woken.set()

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
                await asyncio.wait_for(self.woken.wait(), self.ending or AGAIN_S)
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
        rows, ended, ending = await read(self.job_id, min(member.last for member in members))
        entitled = await database_sync_to_async(self._entitled)({member.entry for member in members})
        self.ending = min(RETRY_S, 2 * self.ending or ENDING_S) if ending else 0.0
        for member in members:
            try:
                if member.entry in entitled:
                    await member.take(rows, ended)
                else:
                    await member.refuse()
            except Exception:  # one that has just gone must not keep the others from their news
                log.exception("feed of job %s: a websocket could not be served", self.job_id)
                self.leave(member)
        if len(rows) == CHUNK:
            self.woken.set()

    def _entitled(self, entries: set[Entry]) -> set[Entry]:
        """Those that would be let in now. Asked after the rows were read: what was taken back is not given any more.

        Of a job that is gone already, of which there is nothing to see, all may hear.
        """
        if self.owner is None:
            self.owner = Job.objects.filter(pk=self.job_id).values_list("user_id", flat=True).first()
        return {entry for entry, user in living(entries).items() if user.is_staff or self.owner in (user.pk, None)}
