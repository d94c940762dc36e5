"""The live half of the Metrics-manager: history first, then each new row, in order, none twice (contract 4).

The feed is joined before the history is read, so nothing falls between the two. Each row has its number, and a row
that is not after the last one sent is not sent.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer

from accounts.auth import Entry, entry_by_session, user_of_token
from jobs.models import Job, Metrics

from . import feed, recording

NORMAL_CLOSE = 1000
ENDED = 4401  # the token or the session that opened it is none any more, or the caller may not see the job any more


class JobMetricsConsumer(AsyncJsonWebsocketConsumer):
    job_id: int | None = None
    entry: Entry
    last = 0
    behind = True  # until the history is sent, we read by ourselves
    feed: feed.Feed | None = None

    async def connect(self) -> None:
        route = self.scope["url_route"]["kwargs"]
        self.user, self.name = route["user"], route["name"]
        found, subprotocol = await database_sync_to_async(self._find)()
        if found is None:
            await self.close()  # before accept: the handshake is refused
            return
        self.entry, self.job_id = found
        self.turn = asyncio.Lock()
        self.feed = await feed.join(self.job_id, self)
        await self.accept(subprotocol)
        await self._catch_up()

    async def disconnect(self, code) -> None:
        self._leave()

    def _leave(self) -> None:
        if self.feed is not None:
            self.feed.leave(self)
            self.feed = None

    async def receive(self, text_data=None, bytes_data=None, **kwargs) -> None:
        """What a client says is of no interest."""

    async def take(self, rows: list[Metrics], ended: bool) -> None:
        """From the feed: what is new to us of these rows; a normal close once the job had ended before."""
        await self._send(rows)
        if ended:
            await self.close(NORMAL_CLOSE)

    async def refuse(self) -> None:
        await self.close(ENDED)
        self._leave()  # last: the feed's task, which this is, may end with its last member

    async def _catch_up(self) -> None:
        """Everything up to now. The last look is taken with `behind` off, so the feed has what comes after it."""
        while True:
            rows, ended, _ending = await feed.read(self.job_id, self.last)
            if self.feed is None:
                return  # refused meanwhile
            await self._send(rows)
            if ended:
                await self.close(NORMAL_CLOSE)
                return
            if not self.behind:
                if self.feed is not None:
                    self.feed.look()
                return
            self.behind = len(rows) >= feed.CHUNK

    async def _send(self, rows: list[Metrics]) -> None:
        async with self.turn:
            for row in rows:
                if row.seq > self.last:
                    self.last = row.seq
                    await self.send_json(recording.as_object(row, self.user, self.name))

    def _find(self):
        """((what let the caller in, job's key), subprotocol); None in the first place for who may not see it."""
        caller, entry, subprotocol = self._caller()
        job = caller and self._job(caller, self.user, self.name)
        return ((entry, job.pk) if job else None), subprotocol

    def _caller(self):
        """(the user, what let them in, the subprotocol): by `?token=`, the subprotocols `bearer` and the token, or the
        session; None in the first two places for nobody."""
        offered = self.scope.get("subprotocols", [])
        if len(offered) >= 2 and offered[0] == "bearer":
            return *self._by_token(offered[1]), "bearer"
        query = dict(
            pair.partition("=")[::2] for pair in self.scope["query_string"].decode("latin-1").split("&") if pair
        )
        if "token" in query:
            return *self._by_token(query["token"]), None
        user = self.scope.get("user")
        if user is None or not user.is_authenticated or not self._same_origin():
            return None, None, None
        return user, entry_by_session(user, self.scope["session"].session_key), None

    @staticmethod
    def _by_token(token: str):
        user = user_of_token(token)
        return user, user and Entry(user.pk, token=token)

    def _same_origin(self) -> bool:
        """A page of another origin must not use the visitor's session: browsers send the cookie along regardless."""
        headers = dict(self.scope["headers"])
        origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
        return bool(host) and urlsplit(origin).netloc == host

    @staticmethod
    def _job(caller, username: str, name: str) -> Job | None:
        if caller.username != username and not caller.is_staff:
            return None
        return Job.objects.filter(user__username=username, name=name).first()
