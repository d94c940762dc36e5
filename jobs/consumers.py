"""The live half of the Metrics-manager: history first, then each new row, in order, none twice (contract 4).

The group is joined before the history is read, so nothing falls between the two; a wake carries nothing and only says
"look again", so a lost or doubled one is harmless.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from asgiref.sync import async_to_sync
from channels.generic.websocket import JsonWebsocketConsumer

from accounts.auth import user_of_token
from accounts.models import State as Active
from accounts.models import User
from mlp.kernel.after_commit import group

from . import metrics
from .models import Job, Metrics

NORMAL_CLOSE = 1000
CHUNK = 1000


class JobMetricsConsumer(JsonWebsocketConsumer):
    job_id: int | None = None
    last = 0

    def connect(self) -> None:
        route = self.scope["url_route"]["kwargs"]
        caller, subprotocol = self._caller()
        job = caller and self._job(caller, route["user"], route["name"])
        if not job:
            self.close()  # before accept: the handshake is refused
            return
        self.job_id, self.user, self.name = job.pk, route["user"], route["name"]
        self.caller_id = caller.pk
        async_to_sync(self.channel_layer.group_add)(group("job", job.pk), self.channel_name)
        self.accept(subprotocol)
        self._send_news()

    def disconnect(self, code) -> None:
        if self.job_id is not None:
            async_to_sync(self.channel_layer.group_discard)(group("job", self.job_id), self.channel_name)

    def receive(self, text_data=None, bytes_data=None, **kwargs) -> None:
        """What a client says is of no interest."""

    def wake(self, event) -> None:
        if User.objects.filter(pk=self.caller_id, state=Active.ACTIVED).exists():
            self._send_news()
        else:
            self.close()  # de-registered meanwhile

    def _send_news(self) -> None:
        """Every row after the last one sent; then a normal close if the job had ended before they were read."""
        job = Job.objects.filter(pk=self.job_id).first()
        while True:
            rows = list(Metrics.objects.filter(job_id=self.job_id, seq__gt=self.last)[:CHUNK])
            for row in rows:
                self.send_json(metrics.as_object(row, self.user, self.name))
                self.last = row.seq
            if len(rows) < CHUNK:
                break
        if job is None or job.has_ended:
            self.close(NORMAL_CLOSE)

    def _caller(self):
        """The user behind `?token=`, the subprotocols `bearer` and the token, or the session."""
        offered = self.scope.get("subprotocols", [])
        if len(offered) >= 2 and offered[0] == "bearer":
            return user_of_token(offered[1]), "bearer"
        query = dict(
            pair.partition("=")[::2] for pair in self.scope["query_string"].decode("latin-1").split("&") if pair
        )
        if "token" in query:
            return user_of_token(query["token"]), None
        user = self.scope.get("user")
        return (user if user is not None and user.is_authenticated and self._same_origin() else None), None

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
