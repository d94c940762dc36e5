"""The REST calls of the APP-manager (contract 6), one class for each path."""

from __future__ import annotations

from django.http import HttpResponse

from accounts.sharing.rest import SharedReads
from jobs.log.calls import HITS, LINES, answer_hits, answer_lines
from jobs.logs import TEXT
from kernel.locking import Missing
from kernel.views import Call, query_int, whole

from . import launching, lifecycle, logs, rollouts
from .models import Application, State
from .serializers import AppIn, AppOut

STATES = tuple(State.values)
MODEL = "$response.body#/name"


class AppView(SharedReads):
    """A call about the applications of one user."""

    kind = "application"
    shared = Application

    def rows(self):
        """Return the owner's applications."""
        rows = Application.objects.filter(user=self.owner)
        return rows.select_related("user", "tenant", "model", "alias__registered", "rollout__model")

    def application(self, name: str) -> Application:
        """Return the owner's application of that name. Raises Missing."""
        app = self.rows().filter(name=name).first()
        if app is None:
            raise Missing("application")
        return app


class AppList(AppView):
    calls = {
        "POST": Call(
            "Deploy a model as an application",
            body=AppIn,
            out=AppOut,
            status=201,
            after={"getModelDetail": {"requestBody": {"name": MODEL, "model_name": MODEL}}},
        ),
        "GET": Call("List the user's applications, newest first", out=AppOut, many=True, states=STATES),
    }

    def post(self, request, user):
        return self.answer(lifecycle.create_app(user=self.owner, by=self.by, **self.body()))

    def get(self, request, user):
        return self.page(self.rows())


class AppDetail(AppView):
    calls = {
        "GET": Call("Get an application", out=AppOut),
        "DELETE": Call("Delete an application in state ready or error", out=AppOut),
    }

    def get(self, request, user, name):
        return self.answer(self.application(name))

    def delete(self, request, user, name):
        return self.answer(lifecycle.delete_app(user=self.owner, name=name, by=self.by))


class AppLog(AppView):
    """stdout and stderr together, from byte `offset`, 16 MiB at most; X-Next-Offset is the offset of the next request.

    With `follow=1` new output is sent until the application has ended; there is no X-Next-Offset.
    """

    calls = {
        "GET": Call(
            "Get the log",
            media=("text/plain",),
            query=(("offset", whole(), "first byte to return"), ("follow", whole(0, 1), "1: follow the log")),
            next_offset=True,
        ),
    }

    def get(self, request, user, name):
        app = self.application(name)
        offset = query_int(request, "offset", 0, 0)
        if query_int(request, "follow", 0, 0, 1):
            return logs.follow(request._request, app, offset)
        data = logs.read(app, offset)
        return HttpResponse(data, content_type=TEXT, headers={"X-Next-Offset": str(offset + len(data))})


class AppLogLines(AppView):
    """Lines as a terminal shows them: colours as spans, overwritten text as last drawn. `q` marks its matches."""

    calls = {"GET": LINES}

    def get(self, request, user, name):
        app = self.application(name)
        return answer_lines(request, launching.log_file(app), app, logs.is_over(app))


class AppLogSearch(AppView):
    """Searches the log as it is shown. A call takes about a second at most; `next` is the line to continue from."""

    calls = {"GET": HITS}

    def get(self, request, user, name):
        return answer_hits(request, launching.log_file(self.application(name)))


class AppRollout(AppView):
    """Of an application that follows an alias."""

    calls = {"PUT": Call("Move to the version that its alias names, also after that has failed", out=AppOut)}

    def put(self, request, user, name):
        rollouts.follow(self.application(name).pk, self.by, again=True)
        return self.answer(self.application(name))
