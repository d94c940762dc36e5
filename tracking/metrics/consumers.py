"""The live half of the Metrics-manager: history first, then each new row, in order, none twice."""

from __future__ import annotations

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer

from accounts.auth import Credentials, user_and_credentials_of_session, user_of_token
from accounts.models import Scope
from jobs.models import Metrics
from kernel.slots import TOO_MANY, WEBSOCKETS, Slot

from . import feed, recording

NORMAL_CLOSE = 1000
ENDED = 4401  # the token or session that opened it has ended, or the caller may not see the job any more


class JobMetricsConsumer(AsyncJsonWebsocketConsumer):
    """The websocket of one job's metrics. Opened by a token or by the session of a page of our own origin."""

    reader: feed.Reader | None = None
    slot: Slot | None = None

    async def connect(self) -> None:
        route = self.scope["url_route"]["kwargs"]
        self.user, self.name = route["user"], route["name"]
        entry, job_id, subprotocol = await database_sync_to_async(self._admit)()
        if entry is None or job_id is None:
            await self.close()  # before accept: the handshake is refused
            return
        self.slot = WEBSOCKETS.take(entry.slot_key)
        if self.slot is None:
            await self.accept(subprotocol)  # only an open websocket can be closed with a code and a reason
            await self.close(TOO_MANY, WEBSOCKETS.refusal())
            return
        self.reader = feed.Reader(entry, job_id, self._deliver, self._refuse)
        await self.reader.join()
        await self.accept(subprotocol)
        await self.reader.catch_up()

    async def disconnect(self, code) -> None:
        if self.reader is not None:
            self.reader.leave()
        if self.slot is not None:
            self.slot.free()

    async def receive(self, text_data=None, bytes_data=None, **kwargs) -> None:
        """Ignore messages of the client."""

    async def _deliver(self, rows: list[Metrics], ended: bool) -> None:
        for row in rows:
            await self.send_json(recording.as_object(row, self.user, self.name))
        if ended:
            await self.close(NORMAL_CLOSE)

    async def _refuse(self) -> None:
        await self.close(ENDED)

    def _admit(self) -> tuple[Credentials | None, int | None, str | None]:
        """Return the caller's entry, the job's key and the subprotocol; None for each where there is none."""
        (user, entry), subprotocol = self._caller()
        return entry, user and feed.job_for(user, self.user, self.name, entry.links), subprotocol

    def _caller(self):
        """Return ((user, entry), subprotocol): by the subprotocols `bearer` and the token, by `?token=` or by the
        session. User and entry are None for nobody.
        """
        offered = self.scope.get("subprotocols", [])
        if len(offered) >= 2 and offered[0] == "bearer":
            return self._by_token(offered[1]), "bearer"
        query = dict(
            pair.partition("=")[::2] for pair in self.scope["query_string"].decode("latin-1").split("&") if pair
        )
        if "token" in query:
            return self._by_token(query["token"]), None
        return user_and_credentials_of_session(self.scope), None

    @staticmethod
    def _by_token(token: str):
        user = user_of_token(token, Scope.READ, Scope.SUBMIT)
        return user, user and Credentials(user.pk, token=token)
