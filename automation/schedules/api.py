"""The REST calls of schedules, one class for each path."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.response import Response

from automation.models import Firing, FiringState, Schedule, ScheduleState
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.locking import Missing
from kernel.request_keys import create_once
from kernel.rest import PAGE_LIMIT, StrictJSONParser
from kernel.titles import TitleIn, set_title
from kernel.views import Call, ContractView, query_int
from kernel.yaml_input import YamlParser

from . import firing, lifecycle, reading, times
from .serializers import ChangeIn, FiringOut, PreviewIn, PreviewOut, ScheduleIn, ScheduleOut


class ScheduleView(ContractView):
    kind = "schedule"

    def schedule(self, name: str) -> Schedule:
        """Return the owner's schedule of that name. Raises Missing."""
        row = Schedule.objects.filter(user=self.owner, name=name).select_related("user").first()
        if row is None:
            raise Missing("schedule")
        return row

    def shown(self, schedule: Schedule) -> Response:
        """Return the answer that shows the schedule."""
        return self.answer(reading.filled(schedule))


class ScheduleList(ScheduleView):
    """A schedule submits a job or a sweep at certain times, or on an event. The body may be YAML (application/yaml)."""

    parser_classes = (StrictJSONParser, YamlParser)
    calls = {
        "POST": Call("Create a schedule", SUBMIT, body=ScheduleIn, out=ScheduleOut, status=201),
        "GET": Call(
            "List the user's schedules", READ, out=ScheduleOut, many=True, states=tuple(ScheduleState.values[:2])
        ),
    }

    def post(self, request, user):
        return self.shown(lifecycle.create_schedule(user=self.owner, by=self.by, **self.body()))

    def get(self, request, user):
        rows = self.in_state(Schedule.objects.filter(user=self.owner).select_related("user"))
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        schedules = [reading.filled(row) for row in rows.order_by("-pk")[offset : offset + limit]]
        return Response(ScheduleOut(schedules, many=True).data, headers={"X-Total-Count": str(rows.count())})


class SchedulePreview(ScheduleView):
    calls = {"POST": Call("Get the next five times of a cron expression", SUBMIT, body=PreviewIn, out=PreviewOut)}

    def post(self, request, user):
        given = self.body()
        moments = times.next_times(given["cron"], given["time_zone"], timezone.now(), reading.SHOWN)
        return self.answer({"times": moments})


class ScheduleDetail(ScheduleView):
    calls = {
        "GET": Call("Get a schedule", READ, out=ScheduleOut),
        "PUT": Call("Change when a schedule fires, and its policies", SUBMIT, body=ChangeIn, out=ScheduleOut),
        "DELETE": Call("Delete a schedule: what it has submitted goes on", DESTROY, out=ScheduleOut),
    }

    def get(self, request, user, name):
        return self.shown(self.schedule(name))

    def put(self, request, user, name):
        return self.shown(lifecycle.change(user=self.owner, name=name, by=self.by, **self.body()))

    def delete(self, request, user, name):
        return self.shown(lifecycle.delete_schedule(user=self.owner, name=name, by=self.by))


class ScheduleEdit(ScheduleView):
    calls = {"PUT": Call("Set the title", SUBMIT, body=TitleIn, out=ScheduleOut)}

    def put(self, request, user, name):
        set_title(Schedule, user=self.owner, name=name, **self.body())
        return self.shown(self.schedule(name))


class SchedulePause(ScheduleView):
    calls = {"PUT": Call("Pause a schedule", SUBMIT, frees=True, out=ScheduleOut)}

    def put(self, request, user, name):
        return self.shown(lifecycle.pause(user=self.owner, name=name, by=self.by))


class ScheduleResume(ScheduleView):
    calls = {"PUT": Call("Let a paused schedule go on, with what comes from now on", SUBMIT, out=ScheduleOut)}

    def put(self, request, user, name):
        return self.shown(lifecycle.resume(user=self.owner, name=name, by=self.by))


class ScheduleRun(ScheduleView):
    calls = {"PUT": Call("Submit now, whatever else runs", SUBMIT, once=True, out=FiringOut)}

    def put(self, request, user, name):
        schedule = self.schedule(name)
        return self.answer(create_once(request, firing.of(schedule), lambda within: firing.by_hand(schedule, within)))


class ScheduleFirings(ScheduleView):
    calls = {
        "GET": Call(
            "List what a schedule has done, newest first",
            READ,
            out=FiringOut,
            many=True,
            states=tuple(FiringState.values),
        )
    }

    def get(self, request, user, name):
        rows = self.in_state(Firing.objects.filter(schedule=self.schedule(name)))
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        firings = rows.order_by("-pk")[offset : offset + limit]
        return Response(FiringOut(firings, many=True).data, headers={"X-Total-Count": str(rows.count())})
