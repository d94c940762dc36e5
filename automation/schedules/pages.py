"""Schedules in the browser: the list with its form, and one schedule with its next times and its history."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.sharing.access import visitor_of
from automation import first_values
from automation.models import Firing, Schedule, ScheduleState
from automation.sweeps.forms import MAX_YAML, job_of
from jobs.submit_form import choices
from kernel import yaml_input
from kernel.errors import Refused
from kernel.models import history_of
from kernel.pages import Listing, act, free_name, list_and_create, named, page_of, read_form, retitle, why_not

from . import events, firing, lifecycle, reading
from .serializers import CATCH_UPS, OVERLAPS, ChangeIn, ScheduleIn

FIELDS = {
    "title", "name", "yaml", "cron", "time_zone", "event.name", "job.entry", "job.args", "job.cpu", "job.gpu",
    "job.ram", "args", "job.datasets", "job.image", "job.gpu_type",
}  # fmt: skip
FIRST = {"cpu": 1, "gpu": 0, "ram": 512, "cron": "0 3 * * *", "overlap": "skip", "catch_up": "latest", "code": "latest"}
HISTORY_SHOWN = 20
STATES = ScheduleState.choices[:2]
LISTING = Listing(
    heading=gettext_lazy("Schedules"),
    about=gettext_lazy("A schedule submits a job or a sweep at certain times, or when something happens."),
    new=gettext_lazy("New schedule"),
    none=gettext_lazy("No schedules yet"),
    hint=gettext_lazy("Train every night, or whenever a dataset is ready."),
    no_match=gettext_lazy("No schedule matches"),
    icon="again",
)


@login_required
@require_http_methods(["GET", "POST"])
def schedules(request):
    """Show the user's schedules, and the form of a new one, which a POST creates."""
    return list_and_create(
        request, Schedule.objects.select_related("user"), LISTING, "automation/schedules.html", states=STATES,
        create=_create, fields=FIELDS, context=_form, opened_by={"new", "from", "like"}, complete=_with_last,
        shown_field=_field,
    )  # fmt: skip


def _form(request) -> dict:
    return {
        **first_values.shown(request, _first_values),
        "full": why_not(lambda: lifecycle.require_room(request.user)),
        "events": events.EVENTS,
        "overlaps": OVERLAPS,
        "catch_ups": CATCH_UPS,
        **choices(request.user),
    }


def _field(name: str) -> str:
    return {"event.name": "event_name"}.get(name, name.removeprefix("job."))


def _with_last(rows: list[Schedule]) -> None:
    """Give each schedule its last firing as `last`."""
    newest = Firing.objects.filter(schedule__in=rows).order_by("schedule", "-pk").distinct("schedule")
    last = {row.schedule_id: row for row in newest}
    for row in rows:
        row.last = last.get(row.pk)


def _create(request) -> Schedule:
    fields = ScheduleIn.read(_body_of(request.POST))
    return lifecycle.create_schedule(
        user=request.user, by=request.user.username, visitor=visitor_of(request), **fields
    )  # fmt: skip


def _body_of(post: QueryDict) -> dict:
    """Return the body of POST …/schedules that the form means. Raises Refused."""
    if "yaml" in post:
        if len(post["yaml"]) > MAX_YAML:
            raise Refused("must have at most %(limit)s bytes", field="yaml", limit=MAX_YAML)
        return yaml_input.read(post["yaml"], "yaml")
    body = {"name": post.get("name", "").strip(), "title": post.get("title", ""), "job": job_of(post)}
    body |= {name: post[name] for name in ("overlap", "catch_up", "code") if post.get(name)}
    if on := post.get("on", ""):
        named = post.get("event_name", "").strip()
        body["event"] = {"on": on, **({"name": named} if named else {})}
    else:
        body["cron"] = post.get("cron", "").strip()
        body["time_zone"] = post.get("time_zone", "").strip() or "UTC"
    return body


def _first_values(request) -> dict:
    """Return the form at first: empty, with the values of `?from=job`, or all of `?like=schedule`."""
    mine = Schedule.objects.filter(user=request.user)
    earlier = named(request, mine, "like")
    if earlier is not None:
        return {**FIRST, "yaml": as_yaml(earlier, free_name(mine, earlier.name))}
    return FIRST | first_values.of_job(request, mine)


def as_yaml(row: Schedule, name: str) -> str:
    """Return the YAML that creates such a schedule."""
    when = {"event": row.event} if row.event else {"cron": row.cron, "time_zone": row.time_zone}
    code = "kept" if row.snapshot_id else "latest"
    body = {"name": name, **when, "overlap": row.overlap, "catch_up": row.catch_up, "code": code}
    body |= {name: text for name in ("title", "notes") if (text := getattr(row, name))}
    body[row.kind] = lifecycle.body_of(row)
    return yaml_input.write(body)


# --- one schedule ----------------------------------------------------------------------------------------------------
def _own(request, name: str) -> Schedule:
    return get_object_or_404(Schedule.objects.select_related("user"), user=request.user, name=name)


@login_required
@require_GET
def schedule(request, name):
    """Show one schedule: its next five times, and what it has done."""
    row = reading.filled(_own(request, name))
    page = page_of(request, row.firings.select_related("job__user", "sweep__user", "run__pipeline").order_by("-pk"))
    context = {
        "schedule": row,
        "page": page,
        "text": as_yaml(row, row.name),
        "entry": lifecycle.entry_of(row),
        "unsubmittable": why_not(lambda: lifecycle.require_possible(row)),
        "overlaps": OVERLAPS,
        "catch_ups": CATCH_UPS,
        "history": history_of(row)[:HISTORY_SHOWN],
    }
    return render(request, "automation/schedule.html", context)


@login_required
@require_POST
def title(request, name):
    return retitle(request, Schedule, name)


@login_required
@require_POST
def change(request, name):
    """Pause, resume, change or delete a schedule, or submit now; `do` says what."""
    return act(request, CHANGES, _own(request, name), redirect("schedule", name=name))


def _pause(request, row: Schedule) -> None:
    lifecycle.pause(user=row.user, name=row.name, by=request.user.username)


def _resume(request, row: Schedule) -> None:
    lifecycle.resume(user=row.user, name=row.name, by=request.user.username)


def _run(request, row: Schedule) -> None:
    fired = firing.by_hand(row)
    messages.success(request, _("%(name)s is submitted.") % {"name": fired.made})


def _edit(request, row: Schedule) -> None:
    lifecycle.change(user=row.user, name=row.name, by=request.user.username, **read_form(request, ChangeIn))


def _delete(request, row: Schedule) -> HttpResponse:
    lifecycle.delete_schedule(user=row.user, name=row.name, by=request.user.username)
    messages.success(request, _("The schedule %(name)s is deleted.") % {"name": row.name})
    return redirect("schedules")


CHANGES: dict[str, Callable] = {
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "edit": _edit,
    "delete": _delete,
}
