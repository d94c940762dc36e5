"""The live feed of a job's metrics: one query for all websockets of a process that show the same job.

A `Reader` is one websocket's view of the feed: the history first, then each new row, in order, none twice. It joins the
feed before it reads the history, so no row falls between the two.

A wake message has no payload: it says "look again". With hundreds of browsers on one job, one listener per process
queries once and passes the new rows to each. When a wake message is lost the rows come some seconds later, since
reconcile sends another. A job that has ended is over for a websocket only when all that it reported is stored: until
then the feed looks again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.utils import timezone

from accounts.auth import Credentials
from accounts.models import User
from accounts.sharing import access
from jobs.models import Job, Metrics, State
from kernel.after_commit import group
from kernel.errors import Fault

from . import recording
from .series import MAX_FOLLOWED, NEWEST, names_of

log = logging.getLogger(__name__)

CHUNK = 1000  # rows of one query
QUIET_S = 0.02  # between two looks, so that a burst of wake messages is one look
AGAIN_S = 300.0  # without a wake message: joins the group again, which forgets members after a day, and looks
RETRY_S = 1.0
ENDING_S = 0.1  # between two looks at a job that has ended, whose last rows may be on their way; doubles each time
PATIENCE = timedelta(minutes=1)  # with rows of an ended job while the message bus, which has them, is unavailable

MAX_VALUES = 1000  # of one look at the named values; a page that gets more reads the series again
VALUES = """
SELECT found.* FROM unnest(%(names)s::text[]) AS names(name), LATERAL (
    SELECT id, name, step, value, extract(epoch FROM at)::float8, attempt FROM metric_value
    WHERE job_id = %(job)s AND (name, id) > (names.name, %(after)s) AND name <= names.name
    ORDER BY metric_value.name, id LIMIT %(most)s
) AS found ORDER BY id LIMIT %(most)s
"""

# The feeds of each event loop: a process has one, tests have many.
_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Feed]] = WeakKeyDictionary()


def job_for(user: User | AnonymousUser, owner: str, name: str, links: tuple[int, ...] = ()) -> int | None:
    """Return the key of the owner's job of that name; None when there is none or the visitor may not read it."""
    visitor = access.Visitor(user if user.is_authenticated else None, links)
    job = access.look_up(visitor, Job.objects.all(), owner, name)
    return job and job.pk


class NewValue(NamedTuple):
    id: int
    name: str
    step: int
    value: float
    time: float
    attempt: int


class Values(NamedTuple):
    """The named values of a job after some row. `behind`: there are too many to send one by one."""

    rows: list
    last: int
    behind: bool


class Reader:
    """One websocket's view of a job's metrics.

    `deliver` gets the next rows, and whether they are the last that there will be; `refuse` is called when the entry
    may not see the job any more. Nothing is delivered after `leave`, after the last rows or after `refuse`.
    """

    def __init__(
        self,
        entry: Credentials,
        job_id: int,
        deliver: Callable[[list[Metrics], bool], Awaitable[None]],
        refuse: Callable[[], Awaitable[None]],
        deliver_values: Callable[[Values], Awaitable[None]] | None = None,
    ):
        self.entry, self.job_id = entry, job_id
        self.last = 0  # the number of the last row delivered
        self.last_value: int | None = None  # of the named values; None: they are not delivered
        self.reads_alone = True  # until it has the history, it reads by itself
        self._deliver, self._refuse, self._deliver_values = deliver, refuse, deliver_values
        self._feed: Feed | None = None
        self._turn = asyncio.Lock()

    async def join(self) -> None:
        """Join the process's feed of the job."""
        self._feed = await _join(self)

    async def catch_up(self, after: int = 0) -> None:
        """Deliver all rows after that number up to now. The last query is made with `reads_alone` off, so the feed
        delivers what comes after it.
        """
        self.last = after
        while True:
            rows, ended, _ending = await _read(self.job_id, self.last)
            if ended and self.last_value is not None:
                await self.take_values(await database_sync_to_async(_values)(self.job_id, self.last_value))
            await self.take(rows, ended)
            if self._feed is None:
                return
            if not self.reads_alone:
                self._feed.poll()  # this reader may have seen that the job is ending
                return
            self.reads_alone = len(rows) >= CHUNK

    async def take(self, rows: list[Metrics], ended: bool) -> None:
        """Deliver those of the rows that are new to this reader, and leave the feed when they are the last."""
        async with self._turn:
            if self._feed is None:
                return
            fresh = [row for row in rows if row.seq > self.last]
            if fresh:
                self.last = fresh[-1].seq
            await self._deliver(fresh, ended)
        if ended:
            self.leave()

    async def take_values(self, values: Values) -> None:
        """Send the named values that are new to this reader."""
        async with self._turn:
            if self._feed is None or self.last_value is None or values.last <= self.last_value:
                return
            fresh = [row for row in values.rows if row.id > self.last_value]
            self.last_value = values.last
            await self._deliver_values(values._replace(rows=fresh))

    async def refuse(self) -> None:
        """Stop delivering, and leave the feed; that comes last, since it may cancel the feed's task, which this is."""
        feed, self._feed = self._feed, None
        await self._refuse()
        if feed is not None:
            feed.leave(self)

    def leave(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.leave(self)


async def _join(reader: Reader) -> Feed:
    """Return the process's feed of the job with the reader in it; it notices every wake message from now on."""
    feeds = _feeds.setdefault(asyncio.get_running_loop(), {})
    feed = feeds.get(reader.job_id)
    if feed is None:
        feed = feeds[reader.job_id] = Feed(reader.job_id)
    feed.readers.add(reader)
    await feed.listening.wait()
    return feed


async def _read(job_id: int, after: int) -> tuple[list[Metrics], bool, bool]:
    """Return the next rows, whether they are the last that there will be, and whether the job has ended but more rows
    may come.
    """
    rows, job = await database_sync_to_async(_query)(job_id, after)
    if job is not None and not job.has_ended:
        return rows, False, False
    # Not in the one thread that all of this process share for the database: the message bus may be slow to answer.
    if job is not None and not await asyncio.to_thread(_all_recorded, job):
        return rows, False, True
    rows, _job = await database_sync_to_async(_query)(job_id, after)
    return rows, len(rows) < CHUNK, False


def _query(job_id: int, after: int) -> tuple[list[Metrics], Job | None]:
    """Return the next rows and the job as it was before they were read; None when it is deleted."""
    job = Job.objects.select_related("user").filter(pk=job_id).first()
    return list(Metrics.objects.filter(job_id=job_id, seq__gt=after)[:CHUNK]), job


def _values(job_id: int, after: int) -> Values:
    """Return a job's named values after that row, found name by name, since the index is by name. Of a run with very
    many names the first are followed.
    """
    known = {"job": job_id, "names": list(names_of(job_id, MAX_FOLLOWED)), "after": after, "most": MAX_VALUES + 1}
    with connection.cursor() as cursor:
        cursor.execute(VALUES, known)
        rows = [NewValue(*row) for row in cursor.fetchall()]
        if len(rows) <= MAX_VALUES:
            return Values(rows, max((row.id for row in rows), default=after), False)
        cursor.execute(NEWEST, known)
        return Values([], cursor.fetchone()[0], True)


def _all_recorded(job: Job) -> bool:
    try:
        return job.state == State.DELETING or recording.all_recorded(job)
    except Fault:
        return job.ended is None or timezone.now() - job.ended > PATIENCE


class Feed:
    """The readers of one job in this process, and the two tasks that serve them."""

    def __init__(self, job_id: int):
        self.job_id = job_id
        self.readers: set[Reader] = set()
        self.listening = asyncio.Event()
        self.woken = asyncio.Event()
        self.owner: int | None = None  # of the job; never changes
        self.ending = 0.0  # seconds until the next look at a job that is ending
        self.tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._work())]

    def leave(self, reader: Reader) -> None:
        """Remove the reader; without readers the feed ends, and both its tasks are cancelled."""
        self.readers.discard(reader)
        if not self.readers:
            _feeds.get(asyncio.get_running_loop(), {}).pop(self.job_id, None)
            for task in self.tasks:
                task.cancel()

    def poll(self) -> None:
        """Have the feed query soon."""
        self.woken.set()

    async def _listen(self) -> None:
        """Turn messages of the channel layer into `woken`; subscribe again when the layer has failed."""
        layer = get_channel_layer()
        while True:
            channel = None
            try:
                channel = await layer.new_channel()
                await layer.group_add(group("job", self.job_id), channel)
                self.listening.set()
                self.woken.set()  # for rows stored while nobody listened
                while True:
                    await layer.receive(channel)
                    self.woken.set()
            except asyncio.CancelledError:
                if channel is not None:
                    with contextlib.suppress(Exception):  # the group drops the channel by itself after a while
                        await layer.group_discard(group("job", self.job_id), channel)
                raise
            except Exception as problem:
                log.warning("feed of job %s: %s; trying again", self.job_id, problem or type(problem).__name__)
                self.listening.set()  # readers that wait for it are served by the timed looks
                await asyncio.sleep(RETRY_S)

    async def _work(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.ending or AGAIN_S):
                    await self.woken.wait()
            self.woken.clear()
            try:
                await self._look()
            except Exception:  # for example the database is unavailable: tried again
                log.exception("feed of job %s", self.job_id)
                await asyncio.sleep(RETRY_S)
                self.woken.set()
            await asyncio.sleep(QUIET_S)

    async def _look(self) -> None:
        readers = [reader for reader in self.readers if not reader.reads_alone]
        if not readers:
            return
        rows, ended, ending = await _read(self.job_id, min(reader.last for reader in readers))
        after = min((reader.last_value for reader in readers if reader.last_value is not None), default=None)
        values = None if after is None else await database_sync_to_async(_values)(self.job_id, after)
        entitled = await database_sync_to_async(self._entitled)({reader.entry for reader in readers})
        self.ending = min(RETRY_S, 2 * self.ending or ENDING_S) if ending else 0.0
        for reader in readers:
            try:
                if reader.entry in entitled:
                    if values is not None:
                        await reader.take_values(values)
                    await reader.take(rows, ended)
                else:
                    await reader.refuse()
            except Exception:  # a websocket that has just closed must not hold up the others
                log.exception("feed of job %s: a websocket could not be served", self.job_id)
                self.leave(reader)
        if len(rows) == CHUNK:
            self.woken.set()

    def _entitled(self, entries: set[Credentials]) -> set[Credentials]:
        """Return the entries that may see the job now. Asked after the rows were read, so that nothing is sent to
        somebody whose right was revoked before. A deleted job has no rows, so any valid entry passes.
        """
        if self.owner is None:
            self.owner = Job.objects.filter(pk=self.job_id).values_list("user_id", flat=True).first()
        return access.entitled(entries, Job, self.job_id, self.owner)
