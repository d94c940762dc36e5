"""`/ws/live`: the one websocket of a page, for changes of state and for the metrics of the jobs that the page shows.

For our own pages: it accepts the session only, and only for a page of our own origin. A session that has opened links
of shared objects (accounts.sharing) needs no user; it is sent what concerns these. Messages are JSON objects, the
server's all have a `type`:

    ready                                    the page is subscribed: later changes are sent
    changed  kind, name, mine, moving, progress
                                             an object has changed; `mine` when it is the reader's own (operators get
                                             all), `moving` for what changes often, such as progress: sent at most every
                                             MOVING_S, with the `progress` where there is one
    missed                                   something has changed between the rendering of the page and `ready`
    metrics  user, job, id, reset, rows, ended
                                             the next rows of a watched job: `epoch`, `accuracy`, `loss`, `progress`,
                                             `time` (seconds since 1970), `attempt` and `seq`, their number; in order,
                                             none twice. `reset`: earlier rows were of another job of that name.
                                             `ended`: these are the last
    values   user, job, rows, last, behind   its next values under other names: [name, step, value, time, attempt], a
                                             value that is not finite as "NaN", "Infinity" or "-Infinity". `last`: the
                                             number of the last. `behind`: they were too many, read the series again
    gone     user, job                       there is no such job, or the reader may not see it
    lines    rows                            log lines stored or judged just now that match the page's filters; after
                                             subscribing, the newest first:
                                             `id`, `time` (ms), `log`, `level`, `cluster`, `namespace`, `deployment`,
                                             `styles` of a coloured line (kernel/ansi.py)
    parts                                    to administrators who subscribed: the state of a component has changed
    beat                                     every 20 s, so that the page can tell a quiet connection from a dead one

    {"watch": [{"kind": "metrics", "user": …, "job": …, "id": …, "after": …, "values": …},
               {"kind": "lines", "query": …}, {"kind": "parts"},
               {"kind": "object", "user": …, "object": …, "name": …}], "begun": …}
                                             from the page: all that it shows now; each message replaces the one before.
                                             `id` and `after`, both optional, name the job and the last row that the
                                             page has, so that only later rows are sent. Values are sent where `values`
                                             is there: the last one that the page has. `query` are the filters of log
                                             lines as in a page's address. An `object` of another user, which is shared
                                             with the reader: its changes are sent as `mine`, too. `begun`, in the first
                                             message: when the page was rendered

Changes within TOGETHER_S are sent together. Closed with 4401 when the session has ended, 4403 when the user's rights
have changed since it was opened (the page reconnects with the current ones), 4429 when the user has too many websockets
(MLP_WEBSOCKETS_PER_USER), 4400 for any other message. Session and
rights are checked whenever the user or the session changes, at each message of the page and at each beat. Nothing is
kept for a page that was disconnected: it reloads its regions once it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db.utils import DatabaseError

from accounts.auth import has_all_rights, user_and_credentials_of_session
from aiops.intake import tail
from jobs.models import Metrics
from kernel import ansi
from kernel.after_commit import OPERATORS_PAGES, group, pages_of
from kernel.errors import Refused
from kernel.models import StateChange
from kernel.slots import TOO_MANY, WEBSOCKETS, Slot
from supervision import health
from tracking.metrics import feed
from tracking.metrics.serializers import finite

from . import shared, subscriptions
from .shared import Shown

log = logging.getLogger(__name__)

BEAT_S = 20.0
MOVING_S = 2.0  # between two messages about the progress of one object
SLACK_S = 2.0  # a change is committed at most so long after its row got its time
NEWEST = 20  # changes that are looked at
PARTS_S = 3.0  # between two checks of the components, while an administrator watches them
TOGETHER_S = 0.1  # changes within this time are sent together
MAX_PENDING = 500
MALFORMED, ENDED, OTHER_RIGHTS = 4400, 4401, 4403
LINE = {
    "id": "_id", "time": "time", "log": "log", "level": "anomaly_level", "cluster": "cluster_id",
    "namespace": "namespace_name", "deployment": "deployment",
}  # fmt: skip
OF_THE_SESSION = {"user", "session"}


class WatchedJob:
    """A job on the page: follows its metrics (tracking.metrics.feed) for the websocket."""

    def __init__(self, consumer: LiveConsumer, user: str, name: str):
        self.consumer, self.user, self.name = consumer, user, name
        self.reset = False
        self.reader: feed.Reader | None = None

    async def begin(self, known: int, after: int, values: int | None = None) -> None:
        """Send the rows after `after` where the page knows this very job, else the whole history first."""
        job_id = await database_sync_to_async(feed.job_for)(
            self.consumer.user, self.user, self.name, self.consumer.entry.links
        )
        if job_id is None:
            await self.consumer.say("gone", user=self.user, job=self.name)
            return
        self.reset = known != job_id
        self.reader = feed.Reader(self.consumer.entry, job_id, self._deliver, self._refuse, self._deliver_values)
        self.reader.last_value = 0 if self.reset and values is not None else values
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
            rows=[_row(row) for row in rows],
            ended=ended,
        )

    async def _deliver_values(self, values: feed.Values) -> None:
        rows = [[row.name, row.step, finite(row.value), round(row.time, 3), row.attempt] for row in values.rows]
        await self.consumer.say(
            "values", user=self.user, job=self.name, rows=rows, last=values.last, behind=values.behind
        )

    async def _refuse(self) -> None:
        self.consumer.go(self._say_gone())  # not in the feed's own task, which may end with its last reader

    async def _say_gone(self) -> None:
        if await self.consumer.recheck():  # the session is still valid: it is this job that the reader may not see
            await self.consumer.say("gone", user=self.user, job=self.name)

    def end(self) -> None:
        if self.reader is not None:
            self.reader.leave()


def _row(row: Metrics) -> dict:
    """Return a row for the page, with its owner the first time."""
    numbers = {name: getattr(row, name) for name in ("epoch", "accuracy", "loss", "progress", "attempt", "seq")}
    return {**numbers, "time": round(row.at.timestamp(), 3)}


class LiveConsumer(AsyncWebsocketConsumer):
    """The websocket of one page."""

    async def connect(self) -> None:
        self.user, self.entry = user_and_credentials_of_session(self.scope)
        self.watched: dict[tuple[str, str], WatchedJob] = {}
        self.tasks: set[asyncio.Task] = set()
        self.pending: dict[tuple, bool] = {}
        self.progress: dict[tuple, int | None] = {}
        self.moved: dict[tuple, float] = {}
        self.parts_task: asyncio.Task | None = None
        self.groups_joined: list[str] = []
        self.reader: tail.Reader | None = None
        self.lines_query: str | None = None
        self.over = False
        self.slot: Slot | None = None
        self.shown: Shown | None = None
        if self.user is None:
            await self.close()  # before accept: refuses the handshake
            return
        self.slot = WEBSOCKETS.take(self.entry.slot_key)
        if self.slot is None:
            self.over = True
            await self.accept()  # only an open websocket can be closed with a code and a reason
            await self.close(TOO_MANY, WEBSOCKETS.refusal())
            return
        groups = [pages_of(self.user.username)] if self.user.is_authenticated else []
        if has_all_rights(self.user):
            groups += [OPERATORS_PAGES, group("aiops", 0)]
        for name in groups:
            await self.channel_layer.group_add(name, self.channel_name)
            self.groups_joined.append(name)
        if not await self.recheck():  # revoked before the subscription
            return
        await self.accept()
        await self.say("ready")
        self.go(self._beat())

    async def disconnect(self, code) -> None:
        if self.slot is not None:
            self.slot.free()
        await self._release()

    async def _release(self) -> None:
        """Unsubscribe from everything and cancel the tasks."""
        for watched in self.watched.values():
            watched.end()
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()
        while self.groups_joined:
            with contextlib.suppress(Exception):  # the group expires the channel by itself
                await self.channel_layer.group_discard(self.groups_joined.pop(), self.channel_name)

    async def receive(self, text_data=None, bytes_data=None) -> None:
        if not await self.recheck():
            return
        jobs, lines_query, parts, begun, shown = subscriptions.parse(text_data) or (None, None, False, None, None)
        if jobs is None or not await self._subscribe_lines(lines_query):
            await self.close(MALFORMED)
            return
        await self._show(shown)
        for key in self.watched.keys() - jobs.keys():
            self.watched.pop(key).end()
        for key in jobs.keys() - self.watched.keys():
            self.watched[key] = WatchedJob(self, *key)
            self.go(self._begin(self.watched[key], *jobs[key]))
        if begun is not None and await database_sync_to_async(self._has_changed_since)(begun):
            await self.say("missed")
        if parts and self.parts_task is None and has_all_rights(self.user):
            self.parts_task = self.go(self._watch_parts())

    async def recheck(self) -> bool:
        """Return whether the session is valid and its user has the rights of when it was opened; else close."""
        if self.over:
            return False
        user = await database_sync_to_async(shared.current)(self.entry)
        if user is not None and has_all_rights(user) == has_all_rights(self.user):
            return True
        if not self.over:
            self.over = True
            await self.close(ENDED if user is None else OTHER_RIGHTS)
            await self._release()
        return False

    async def say(self, message: str, /, **values) -> None:
        """Send a message of that type."""
        if not self.over:
            await self.send(json.dumps({"type": message, **values}, ensure_ascii=False))

    # --- from the channel layer -------------------------------------------------------------------------------------
    async def changed(self, event: dict) -> None:
        mine = event["owner"] == self.user.username
        if mine and event["kind"] in OF_THE_SESSION and not await self.recheck():
            return
        concerned = self.shown is not None and self.shown.concerned(event)
        if not (mine or concerned or has_all_rights(self.user)):
            return
        name = event["name"] if mine else self.shown.name if concerned else ""
        what = (self.shown.kind if concerned else event["kind"], name, mine or concerned)
        self.progress[what] = event.get("progress") if mine else None
        self._queue_change(what, event["moving"])
        if concerned and event["kind"] in shared.RIGHTS:
            await self._recheck_shown()

    async def wake(self, event: dict) -> None:
        self._queue_change((event.get("kind", ""), "", False), moving=True)

    async def lines(self, event: dict) -> None:
        rows = self.reader.pick(event["rows"]) if self.reader else []
        if rows:
            await self._say_lines(rows)

    # --- inside -----------------------------------------------------------------------------------------------------
    async def _subscribe_lines(self, query: str | None) -> bool:
        """Subscribe to the log lines that match the page's filters; return False when the filters are invalid."""
        if query == self.lines_query:
            return True
        try:
            reader = None
            if query is not None and self.user.is_authenticated:  # which lines the user may see is in the database
                reader = await database_sync_to_async(tail.Reader)(self.user, query)
        except Refused:
            return False
        if reader is not None and reader.group not in self.groups_joined:
            await self.channel_layer.group_add(reader.group, self.channel_name)
            self.groups_joined.append(reader.group)
        self.lines_query, self.reader = query, reader
        if reader is not None:
            await self._say_lines(await database_sync_to_async(reader.newest)())
        return True

    async def _show(self, shown: Shown | None) -> None:
        """Subscribe to the changes of another user's object, when the reader may read it."""
        if shown == self.shown:
            return
        self.shown = None
        if shown is not None and await database_sync_to_async(shown.readable)(self.user, self.entry):
            group_of_owner = pages_of(shown.owner)
            if group_of_owner not in self.groups_joined:
                await self.channel_layer.group_add(group_of_owner, self.channel_name)
                self.groups_joined.append(group_of_owner)
            self.shown = shown

    async def _recheck_shown(self) -> None:
        """Stop following the shared object once the reader may not read it; the page is fetched again and says why."""
        shown = self.shown
        if shown is None or await database_sync_to_async(shown.readable)(self.user, self.entry):
            return
        self.shown = None
        self._queue_change((shown.kind, shown.name, True), moving=False)

    async def _say_lines(self, rows: list[dict]) -> None:
        short_rows = [{short: row.get(name, "") for short, name in LINE.items()} for row in rows]
        await self.say("lines", rows=[{**row, **_drawn(row["log"][: tail.TEXT])} for row in short_rows])

    def _queue_change(self, what: tuple, moving: bool) -> None:
        """Schedule the message about a change: about changes that only move, at most every MOVING_S, to limit the
        traffic.
        """
        is_known = what in self.pending or len(self.pending) >= MAX_PENDING
        if is_known and (moving or not self.pending.get(what, False)):
            return
        self.pending[what] = moving
        wait = self.moved.get(what, 0) + MOVING_S - time.monotonic() if moving else 0
        self.go(self._send_change(what, moving, max(TOGETHER_S, wait)))

    async def _send_change(self, what: tuple, moving: bool, wait: float) -> None:
        await asyncio.sleep(wait)
        if self.pending.get(what) is not moving:
            return  # sent already, as a change that does not only move
        del self.pending[what]
        if len(self.moved) >= MAX_PENDING:
            self.moved.clear()
        self.moved[what] = time.monotonic()
        kind, name, mine = what
        progress = self.progress.pop(what, None)
        more = {} if progress is None else {"progress": progress}
        await self.say("changed", kind=kind, name=name, mine=mine, moving=moving, **more)

    def _has_changed_since(self, begun: float) -> bool:
        """Return whether an object that the reader's pages show has changed state since then."""
        rows = StateChange.objects.order_by("-id")
        if not has_all_rights(self.user):
            rows = rows.filter(owner=self.user.username)
        newest = [at.timestamp() for at in rows.values_list("at", flat=True)[:NEWEST]]
        return any(at >= begun - SLACK_S for at in newest)

    async def _begin(self, watched: WatchedJob, *known: int | None) -> None:
        try:
            await watched.begin(*known)
        except Exception:
            await self.close(1011)  # the page reconnects and subscribes again
            raise
        if self.watched.get((watched.user, watched.name)) is not watched:
            watched.end()  # dropped by the page before it had begun

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                if not await self.recheck():
                    return
                await self._recheck_shown()  # a share may have reached its end date
            except DatabaseError:  # while the database is unavailable, nothing new is sent
                log.warning("a page's rights could not be checked; trying again at the next beat")
            await self.say("beat")

    async def _watch_parts(self) -> None:
        """Notify the page when the state of a component changes.

        Components do not announce changes, so they are polled. The report is cached briefly, so that all pages of this
        process share one check.
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


def _drawn(line: str) -> dict:
    """Return the text of a line as a terminal shows it, with its colours if it has any."""
    text, spans, _style = ansi.draw(line)
    return {"log": text, "styles": spans} if spans else {"log": text}
