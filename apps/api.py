"""The REST calls of the APP-manager, one class for each path."""

from __future__ import annotations

from django.http import HttpResponse

from accounts.sharing.rest import SharedReads
from jobs.log.calls import HITS, LINES, answer_hits, answer_lines
from jobs.logs import EVENTS, TEXT
from kernel.effects import DESTROY, READ
from kernel.locking import Missing, WrongState
from kernel.messages import word
from kernel.titles import TitleIn, set_title
from kernel.views import TRASH, Call, query_int, to_trash, whole

from . import canaries, launching, lifecycle, logs, queueing, replicas, rollouts, runs, trash
from .models import Application, State
from .serializers import (
    AppIn,
    AppMoveIn,
    AppOut,
    AppQueueOut,
    AppRestartIn,
    AppRunOut,
    AppUptimeOut,
    CanaryIn,
    CanaryShareIn,
    ReplicasIn,
)  # fmt: skip

STATES = tuple(State.values)
MODEL = "$response.body#/name"


class AppView(SharedReads):
    """A call about the applications of one user."""

    kind = "application"
    shared = Application

    def rows(self):
        """Return the owner's applications."""
        rows = Application.objects.filter(user=self.owner)
        joined = rows.select_related("user", "tenant", "model", "alias__registered", "rollout__model")
        return joined.prefetch_related("replicas")

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
        "GET": Call("List the user's applications, newest first", READ, out=AppOut, many=True, states=STATES),
    }

    def post(self, request, user):
        return self.answer(lifecycle.create_app(user=self.owner, by=self.by, **self.body()))

    def get(self, request, user):
        return self.page(self.rows().filter(trashed=None))


class AppDetail(AppView):
    calls = {
        "GET": Call("Get an application", READ, out=AppOut),
        "DELETE": Call("Delete an application in state ready or error", DESTROY, out=AppOut, query=TRASH),
    }

    def get(self, request, user, name):
        return self.answer(self.application(name))

    def delete(self, request, user, name):
        verb = trash.trash if to_trash(request) else lifecycle.delete_app
        return self.answer(verb(user=self.owner, name=name, by=self.by))


class AppEdit(AppView):
    calls = {"PUT": Call("Set the title", body=TitleIn, out=AppOut)}

    def put(self, request, user, name):
        set_title(Application, user=self.owner, name=name, **self.body())
        return self.answer(self.application(name))


class AppLog(AppView):
    """stdout and stderr together, from byte `offset`, 16 MiB at most; X-Next-Offset is the offset of the next request.

    With `follow=1` new output is sent until the application has ended; there is no X-Next-Offset. Nothing is sent while
    nothing is written, unless the client accepts `text/event-stream`.
    """

    calls = {
        "GET": Call(
            "Get the log",
            READ,
            media=("text/plain",),
            stream=EVENTS,
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
    """PUT moves the application to another model without a refused request: the new run is ready before requests go to
    it. With `model_name` it follows no alias from then on. Without a model or an alias it moves to the version that its
    alias names now, or tries a move again that has failed or waits.
    """

    calls = {
        "PUT": Call("Move an application to another model or alias", body=AppMoveIn, out=AppOut),
        "DELETE": Call("Cancel a move that was requested", frees=True, out=AppOut),
    }

    def put(self, request, user, name):
        app, values = self.application(name), self.body()
        if values.get("model_name") or values.get("follows"):
            rollouts.move(user=self.owner, name=name, by=self.by, **values)
        else:
            rollouts.again(app.pk, self.by, **values)
        return self.answer(self.application(name))

    def delete(self, request, user, name):
        rollouts.cancel(user=self.owner, name=name, by=self.by)
        return self.answer(self.application(name))


class AppCanary(AppView):
    """With a canary a move begins with a share of the requests: the new run answers them beside the old one, in steps.
    The move ends, and the application serves what it served before, when the new run fails or breaks a rule.
    """

    calls = {
        "PUT": Call("Set how an application's moves to another model begin", body=CanaryIn, out=AppOut),
        "DELETE": Call("Let an application move to another model at once", frees=True, out=AppOut),
    }

    def put(self, request, user, name):
        canaries.set_plan(user=self.owner, name=name, by=self.by, **self.body())
        return self.answer(self.application(name))

    def delete(self, request, user, name):
        canaries.set_plan(user=self.owner, name=name, by=self.by)
        return self.answer(self.application(name))


class AppShare(AppView):
    """The steps of the plan no longer count from then on. DELETE of the rollout goes back to the old model."""

    calls = {"PUT": Call("Set the share of the requests that go to the canary", body=CanaryShareIn, out=AppOut)}

    def put(self, request, user, name):
        canaries.set_percent(user=self.owner, name=name, by=self.by, **self.body())
        return self.answer(self.application(name))


class AppReplicas(AppView):
    """Fewer or more runs of the application: each with the resources of one, behind the same address. A request goes to
    the one with least in work. What is not given stays as it is.
    """

    calls = {"PUT": Call("Set how many replicas an application has", body=ReplicasIn, out=AppOut)}

    def put(self, request, user, name):
        replicas.set_replicas(user=self.owner, name=name, by=self.by, **self.body())
        return self.answer(self.application(name))


class AppRestart(AppView):
    """The new process is ready before requests go to it. Without room for two it waits, or restarts with a short
    interruption if `may_restart`.
    """

    calls = {"PUT": Call("Restart an application", body=AppRestartIn, out=AppOut)}

    def put(self, request, user, name):
        rollouts.move(user=self.owner, name=name, by=self.by, **self.body())
        return self.answer(self.application(name))


class AppStop(AppView):
    """Requests in flight are answered; then its resources are released. It is in state error with `stopped`."""

    calls = {"PUT": Call("Stop a starting, queued or ready application", frees=True, out=AppOut)}

    def put(self, request, user, name):
        lifecycle.stop_app(user=self.owner, name=name, by=self.by)
        return self.answer(self.application(name))


class AppStart(AppView):
    """Without free resources it is queued."""

    calls = {"PUT": Call("Start a stopped or failed application", out=AppOut)}

    def put(self, request, user, name):
        lifecycle.start_app(user=self.owner, name=name, by=self.by)
        return self.answer(self.application(name))


class AppRuns(AppView):
    """The latest 200 are kept."""

    calls = {"GET": Call("List the application's runs, newest first", READ, out=AppRunOut, many=True)}

    def get(self, request, user, name):
        return self.page(self.application(name).runs.all())


class AppUptime(AppView):
    calls = {"GET": Call("Get how long the application was up in the last day", READ, out=AppUptimeOut)}

    def get(self, request, user, name):
        return self.answer(runs.uptime(runs.latest(self.application(name))))


class AppQueue(AppView):
    """What is missing, and who uses it. Other users' objects are one sum; administrators get their names."""

    calls = {"GET": Call("Get why a queued application waits", READ, out=AppQueueOut)}

    def get(self, request, user, name):
        app, reader = self.application(name), self.reading is not None
        explanation = queueing.explain(app, all_names=not reader and request.user.is_administrator, reader=reader)
        if explanation is None:
            raise WrongState(
                "the application is %(state)s; only a queued one has a position in the queue", state=word(app.state)
            )
        return self.answer(explanation)
