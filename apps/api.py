"""The REST calls of the APP-manager (contract 6), one class for each path."""

from __future__ import annotations

from django.http import HttpResponse

from jobs.logs import TEXT
from kernel.locking import Missing
from kernel.views import Call, ContractView, query_int, whole

from . import lifecycle, logs
from .models import Application, State
from .serializers import AppIn, AppOut

STATES = tuple(State.values)
MODEL = "$response.body#/name"


class AppView(ContractView):
    """A call about the applications of one user."""

    kind = "application"

    def rows(self):
        """Return the owner's applications."""
        return Application.objects.filter(user=self.owner).select_related("user", "tenant", "model")

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
