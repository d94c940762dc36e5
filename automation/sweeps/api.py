"""The REST calls of sweeps, one class for each path."""

from __future__ import annotations

from rest_framework.response import Response

from accounts.sharing.rest import SharedReads
from automation.models import Sweep, SweepState, TrialState
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.locking import Missing
from kernel.rest import PAGE_LIMIT, StrictJSONParser
from kernel.titles import TitleIn, set_title
from kernel.views import Call, query_int
from kernel.yaml_input import YamlParser

from . import lifecycle, reading
from .serializers import ExtendIn, SweepIn, SweepOut, TrialIn, TrialOut

STATES = tuple(SweepState.values)


class SweepView(SharedReads):
    kind = "sweep"
    shared = Sweep

    def sweep(self, name: str) -> Sweep:
        """Return the owner's sweep of that name. Raises Missing."""
        row = Sweep.objects.filter(user=self.owner, name=name).select_related("user").first()
        if row is None:
            raise Missing("sweep")
        row.reading = self.reading
        return row

    def shown(self, sweep: Sweep) -> Response:
        """Return the answer that shows the sweep."""
        return self.answer(reading.filled([sweep])[0])


class SweepList(SweepView):
    """A sweep submits jobs with the values that its sampler suggests. The body may be YAML (application/yaml)."""

    parser_classes = (StrictJSONParser, YamlParser)
    calls = {
        "POST": Call("Begin a sweep", SUBMIT, body=SweepIn, out=SweepOut, status=201),
        "GET": Call("List the user's sweeps, newest first", READ, out=SweepOut, many=True, states=STATES),
    }

    def post(self, request, user):
        return self.shown(lifecycle.create_sweep(user=self.owner, by=self.by, **self.body()))

    def get(self, request, user):
        rows = self.in_state(Sweep.objects.filter(user=self.owner).select_related("user"))
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        sweeps = reading.filled(list(rows.order_by("-pk")[offset : offset + limit]))
        return Response(SweepOut(sweeps, many=True).data, headers={"X-Total-Count": str(rows.count())})


class SweepDetail(SweepView):
    calls = {
        "GET": Call("Get a sweep", READ, out=SweepOut),
        "DELETE": Call(
            "Delete a sweep: its trials are cancelled first",
            DESTROY,
            out=SweepOut,
            query=(("trash", {"type": "integer", "minimum": 0, "maximum": 1}, "1: its runs are moved to the trash"),),
        ),
    }

    def get(self, request, user, name):
        return self.shown(self.sweep(name))

    def delete(self, request, user, name):
        trash = bool(query_int(request, "trash", 0, 0, 1))
        return self.shown(lifecycle.delete_sweep(user=self.owner, name=name, by=self.by, trash_runs=trash))


class SweepEdit(SweepView):
    calls = {"PUT": Call("Set the title", SUBMIT, body=TitleIn, out=SweepOut)}

    def put(self, request, user, name):
        set_title(Sweep, user=self.owner, name=name, **self.body())
        return self.shown(self.sweep(name))


class SweepPause(SweepView):
    calls = {
        "PUT": Call("Pause a sweep: its running trials go on, no new ones are made", SUBMIT, frees=True, out=SweepOut)
    }

    def put(self, request, user, name):
        return self.shown(lifecycle.pause(user=self.owner, name=name, by=self.by))


class SweepResume(SweepView):
    calls = {"PUT": Call("Let a sweep that is paused or has failed go on", SUBMIT, out=SweepOut)}

    def put(self, request, user, name):
        return self.shown(lifecycle.resume(user=self.owner, name=name, by=self.by))


class SweepExtend(SweepView):
    calls = {
        "PUT": Call(
            "Change the number of trials, the jobs at the same time, the stop rules",
            SUBMIT,
            body=ExtendIn,
            out=SweepOut,
        )
    }

    def put(self, request, user, name):
        return self.shown(lifecycle.extend(user=self.owner, name=name, by=self.by, **self.body()))


class SweepCancel(SweepView):
    calls = {"PUT": Call("Cancel a sweep and its trials", SUBMIT, frees=True, out=SweepOut)}

    def put(self, request, user, name):
        return self.shown(lifecycle.cancel(user=self.owner, name=name, by=self.by))


class SweepTrials(SweepView):
    calls = {
        "GET": Call(
            "List the trials of a sweep, newest first", READ, out=TrialOut, many=True, states=tuple(TrialState.values)
        ),
        "POST": Call("Add a trial with values of your own", SUBMIT, body=TrialIn, out=TrialOut, status=201),
    }

    def get(self, request, user, name):
        sweep = self.sweep(name)
        rows = self.in_state(reading.trials_of(sweep))
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        trials = reading.marked(sweep, rows.order_by("-number")[offset : offset + limit])
        return Response(TrialOut(trials, many=True).data, headers={"X-Total-Count": str(rows.count())})

    def post(self, request, user, name):
        sweep = self.sweep(name)
        values = self.body()["params"]
        trial = lifecycle.add_trial(user=self.owner, name=sweep.name, values=values, by=self.by)
        return self.answer(reading.marked(sweep, [trial])[0])
