"""`/ws/live`: the one websocket of a page. Told of changes of state, and of the metrics of the jobs the page shows.

For our own pages: it takes the session alone, and only for a page of our own origin. Messages are JSON objects, the
server's all have a `type`:

    ready                                    the page is in its groups: what changes from now on is told
    changed  kind, name, mine, moving        an object looks different now; `mine` when it is of the reader (operators
                                             hear of all), `moving` for what changes often, such as progress
    metrics  user, job, id, reset, rows, ended
                                             the next rows of a watched job: `epoch`, `accuracy`, `loss`, `progress` and
                                             `seq`, their number; in order, none twice. `reset`: what came before was of
                                             another job of that name. `ended`: these are the last
    gone     user, job                       there is no such job, or it is not for this reader
    lines    rows                            log lines that were stored or judged just now, of those the page asks for;
                                             the newest first of all, when it begins to ask:
                                             `id`, `time` (ms), `log`, `level`, `cluster`, `namespace`, `deployment`
    parts                                    to operators who watch them: how the platform's parts are has changed
    beat                                     every 20 s, so that the page can tell a quiet connection from a dead one

    {"watch": [{"kind": "metrics", "user": …, "job": …, "id": …, "after": …}, {"kind": "lines", "query": …},
               {"kind": "parts"}]}
                                             from the page: all that it shows now; each such message replaces the one
                                             before. `id` and `after`, both optional, say which job and which row it has
                                             already, so that after a reconnect only the rest is sent. `query` are
                                             the filters of log lines as they stand in a page's address

Changes that come close together are told together. Closed with 4401 when the session has ended meanwhile, 4403 when the
user's rights are others than when it was opened (the page comes back, with those of now), 4400 for a message that is
none of these. Both are judged whenever the user or the session is told of as changed, at each message of the page and
at each beat. Nothing is kept for a page that was away: it fetches itself again once it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db.utils import DatabaseError

from accounts.auth import living, user_and_entry_of_session
from aiops.intake import tail
from jobs.metrics import feed, recording
from jobs.models import Metrics
from kernel.after_commit import OPERATORS_PAGES, group, pages_of
from kernel.errors import Refused
from supervision import health

log = logging.getLogger(__name__)

BEAT_S = 20.0
PARTS_S = 3.0  # between two looks at the parts, while an operator watches them
TOGETHER_S = 0.1  # changes within it are told at once
MOST_WATCHED = 24
MOST_BYTES = 1 << 14
MOST_UNTOLD = 500
NONSENSE, ENDED, OTHER_RIGHTS = 4400, 4401, 4403
LINE = {
    "id": "_id", "time": "time", "log": "log", "level": "anomaly_level", "cluster": "cluster_id",
    "namespace": "namespace_name", "deployment": "deployment",
}  # fmt: skip
OF_THE_SESSION = {"user", "session"}


class WatchedJob:
    """A job on the page: follows its metrics (jobs.metrics.feed) for the websocket."""

    def __init__(self, consumer: LiveConsumer, user: str, name: str):
        self.consumer, self.user, self.name = consumer, user, name
        self.reset = False
        self.reader: feed.Reader | None = None

    async def begin(self, known: int, after: int) -> None:
        """Send the rows after `after` where the page knows this very job, else the whole history first."""
        job_id = await database_sync_to_async(feed.job_for)(self.consumer.user, self.user, self.name)
        if job_id is None:
            await self.consumer.say("gone", user=self.user, job=self.name)
            return
        self.reset = known != job_id
        self.reader = feed.Reader(self.consumer.entry, job_id, self._deliver, self._refuse)
        await self.reader.join()
        await self.reader.catch_up(0 if self.reset else after)

    async def _deliver(self, rows: list[Metrics], ended: bool) -> None:
        if not (rows or ended or self.reset):
            return
        reset, self.reset = self.reset, False
        await self.consumer.say(
            "metrics",
            user=self.user,
            job=self.name,
            id=self.reader.job_id,
            reset=reset,
            rows=[{**recording.as_object(row, self.user, self.name), "seq": row.seq} for row in rows],
            ended=ended,
        )

    async def _refuse(self) -> None:
        self.consumer.go(self._say_gone())  # not in the feed's own task, which may end with its last reader

    async def _say_gone(self) -> None:
        if await self.consumer.recheck():  # the session is still valid: it is this job that the reader may not see
            await self.consumer.say("gone", user=self.user, job=self.name)

    def end(self) -> None:
        if self.reader is not None:
            self.reader.leave()


class LiveConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        self.user, self.entry = user_and_entry_of_session(self.scope)
        self.watched: dict[tuple[str, str], WatchedJob] = {}
        self.tasks: set[asyncio.Task] = set()
        self.untold: dict[tuple, bool] = {}
        self.looking: asyncio.Task | None = None
        self.groups_joined: list[str] = []
        self.reader: tail.Reader | None = None
        self.asked: str | None = None
        self.over = False
        if self.user is None:
            await self.close()  # before accept: the handshake is refused
            return
        wanted = [pages_of(self.user.username)]
        if self.user.is_staff:
            wanted += [OPERATORS_PAGES, group("aiops", 0)]
        for name in wanted:
            await self.channel_layer.group_add(name, self.channel_name)
            self.groups_joined.append(name)
        if not await self.recheck():  # taken back before it heard of it
            return
        await self.accept()
        await self.say("ready")
        self.go(self._beat())

    async def disconnect(self, code) -> None:
        await self._let_go()

    async def _let_go(self) -> None:
        """Hears of nothing any more."""
        for one in self.watched.values():
            one.end()
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()
        while self.groups_joined:
            with contextlib.suppress(Exception):  # the group forgets it by itself
                await self.channel_layer.group_discard(self.groups_joined.pop(), self.channel_name)

    async def receive(self, text_data=None, bytes_data=None) -> None:
        if not await self.recheck():
            return
        wanted, asked, parts = _wanted(text_data) or (None, None, False)
        if wanted is None or not await self._read_lines(asked):
            await self.close(NONSENSE)
            return
        for key in self.watched.keys() - wanted.keys():
            self.watched.pop(key).end()
        for key in wanted.keys() - self.watched.keys():
            self.watched[key] = WatchedJob(self, *key)
            self.go(self._begin(self.watched[key], *wanted[key]))
        if parts and self.looking is None and self.user.is_staff:
            self.looking = self.go(self._look_at_parts())

    async def recheck(self) -> bool:
        """Whether the session lives and its user has the rights of when it was opened; else this ends, at once."""
        if self.over:
            return False
        user = (await database_sync_to_async(living)([self.entry])).get(self.entry)
        if user is not None and user.is_staff == self.user.is_staff:
            return True
        if not self.over:
            self.over = True
            await self.close(ENDED if user is None else OTHER_RIGHTS)
            await self._let_go()
        return False

    async def say(self, message: str, /, **values) -> None:
        if not self.over:
            await self.send(json.dumps({"type": message, **values}, ensure_ascii=False))

    # --- from the channel layer -------------------------------------------------------------------------------------
    async def changed(self, event: dict) -> None:
        mine = event["owner"] == self.user.username
        if mine and event["kind"] in OF_THE_SESSION and not await self.recheck():
            return
        self._tell((event["kind"], event["name"] if mine else "", mine), event["moving"])

    async def wake(self, event: dict) -> None:
        self._tell((event.get("kind", ""), "", False), moving=True)

    async def lines(self, event: dict) -> None:
        rows = self.reader.pick(event["rows"]) if self.reader else []
        if rows:
            await self._say_lines(rows)

    # --- inside -----------------------------------------------------------------------------------------------------
    async def _read_lines(self, asked: str | None) -> bool:
        """Hears of log lines as the page asks from now on; False when its filters are none."""
        if asked == self.asked:
            return True
        try:
            reader = None if asked is None else tail.Reader(self.user, asked)
        except Refused:
            return False
        if reader is not None and reader.group not in self.groups_joined:
            await self.channel_layer.group_add(reader.group, self.channel_name)
            self.groups_joined.append(reader.group)
        self.asked, self.reader = asked, reader
        if reader is not None:
            await self._say_lines(await database_sync_to_async(reader.newest)())
        return True

    async def _say_lines(self, rows: list[dict]) -> None:
        told = [{short: row.get(name, "") for short, name in LINE.items()} for row in rows]
        await self.say("lines", rows=[{**row, "log": row["log"][: tail.TEXT]} for row in told])

    def _tell(self, what: tuple, moving: bool) -> None:
        first = not self.untold
        if len(self.untold) < MOST_UNTOLD:
            self.untold[what] = moving and self.untold.get(what, True)
        if first:
            self.go(self._tell_soon())

    async def _tell_soon(self) -> None:
        await asyncio.sleep(TOGETHER_S)
        told, self.untold = self.untold, {}
        for (kind, name, mine), moving in told.items():
            await self.say("changed", kind=kind, name=name, mine=mine, moving=moving)

    async def _begin(self, one: WatchedJob, known: int, after: int) -> None:
        try:
            await one.begin(known, after)
        except Exception:
            await self.close(1011)  # the page comes back and asks again
            raise
        if self.watched.get((one.user, one.name)) is not one:
            one.end()  # not wanted any more, before it had begun

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                if not await self.recheck():
                    return
            except DatabaseError:  # while it is away, nothing new comes out of it
                log.warning("a page's rights could not be looked at; again with the next beat")
            await self.say("beat")

    async def _look_at_parts(self) -> None:
        """The parts do not say by themselves how they are: they are asked here, once for all pages of this process
        (the report is kept for a moment), and a page is told only of what is different.
        """
        before = None
        while True:
            report = await asyncio.to_thread(health.report)
            if report != before:
                await self.say("parts")
            before = report
            await asyncio.sleep(PARTS_S)

    def go(self, work) -> asyncio.Task:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


def _wanted(text: str | None) -> tuple[dict[tuple[str, str], tuple[int, int]], str | None, bool] | None:
    """What a page's message asks for, None when it is none: {(user, job): (the job's key, its last row) as the page
    knows them}, the filters of log lines, and whether it watches the parts."""
    try:
        message = json.loads(text) if text and len(text) <= MOST_BYTES else None
        entries = message["watch"][:MOST_WATCHED]
        asked = next((entry["query"] for entry in entries if entry["kind"] == "lines"), None)
        if not isinstance(asked, str | None):
            return None
        found = {}
        for entry in entries:
            if entry["kind"] in {"lines", "parts"}:
                continue
            user, job, known, after = entry["user"], entry["job"], entry.get("id", 0), entry.get("after", 0)
            whole = all(isinstance(number, int) and 0 <= number < 1 << 31 for number in (known, after))
            if entry["kind"] != "metrics" or not isinstance(user, str) or not isinstance(job, str) or not whole:
                return None
            if not (user.isascii() and job.isascii() and "\0" not in user + job):
                return None
            found[user, job] = (known, after)
        return found, asked, any(entry["kind"] == "parts" for entry in entries)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
