"""The pages of applications: the list with its form, and one application with log and playground."""

from __future__ import annotations

import math
import shlex
from functools import partial

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, prefetch_related_objects
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.sharing import access
from accounts.sharing.access import shareable
from jobs.log import pages as log_pages
from kernel.errors import Refused
from kernel.models import history_of
from kernel.pages import (
    Listing,
    Problems,
    app_address,
    attempt,
    free_name,
    list_and_create,
    number_in,
    problems_of,
    read_form,
    retitle,
    say_trashed,
    shown_in_trash,
    why_not,
)
from kernel.textlog import reading
from models_app.models import Alias, Model
from models_app.models import State as ModelState
from models_app.pages import cpu_that_fits
from resources import products
from resources.models import Tenant

from . import (
    canaries,
    chat_stream,
    launching,
    lifecycle,
    playground,
    queueing,
    replica_range,
    replicas,
    request_rates,
    rollouts,
    runs,
    second_runs,
    trash,
)  # fmt: skip
from .models import Application, State
from .serializers import AppIn, AppMoveIn, ReplicasIn

MODELS_SHOWN = 200
HISTORY_SHOWN = 50
RUNS_SHOWN = 20
FIRST_TOKENS, FIRST_TEMPERATURE = 128, "0.7"  # in the form of a language model
STEPS_SHOWN = 3  # of a canary's plan, in its form
LONGEST_COMMAND = 400  # characters of an input in a command line
LISTING = Listing(
    heading=gettext_lazy("Applications"),
    new=gettext_lazy("New application"),
    none=gettext_lazy("No applications yet"),
    hint=gettext_lazy("A model's page deploys it with one click."),
    no_match=gettext_lazy("No application matches"),
    icon="apps",
)


# --- the list and the form -----------------------------------------------------------------------------------------
@login_required
@require_http_methods(["GET", "POST"])
def applications(request):
    """Show the user's applications; a POST creates one."""
    return list_and_create(
        request, Application.kept.select_related("model", "user"), LISTING, "apps/applications.html",
        states=State.choices, create=_create, fields=AppIn().fields, context=_form,
        opened_by={"new", "model", "follows"}, complete=_with_traffic,
    )  # fmt: skip


def _with_traffic(rows: list[Application]) -> None:
    prefetch_related_objects([row for row in rows if row.is_scaled], "replicas")
    for row in rows:
        row.traffic = request_rates.read(row)


def _form(request) -> dict:
    tenant = Tenant.objects.get(pk=request.user.tenant_id)
    return {
        "form": {**_first_values(request, tenant), **request.POST.dict()},
        "aliases": _aliases(request.user),
        "models": _models(request.user),
        "free": {kind: tenant.left(kind) for kind in ("cpu", "gpu", "ram")},
        "gpu_types": products.offered(),
        "base": f"{app_address(request)}/{request.user.username}",
    }


def _is_one(text: str) -> bool:
    return text == "1"


def _create(request) -> Application:
    fields = read_form(request, AppIn, gpu=int, cpu=float, ram=int, public=_is_one, may_restart=_is_one)
    return lifecycle.create_app(user=request.user, by=request.user.username, **fields)


def _first_values(request, tenant: Tenant) -> dict:
    model, follows = request.GET.get("model", ""), request.GET.get("follows", "")
    stem = model or follows.removeprefix("models:/").rpartition("@")[0]
    name = free_name(Application.objects.filter(user=request.user), stem) if stem else ""
    return {
        "model_name": model,
        "follows": follows,
        "name": name,
        "cpu": f"{cpu_that_fits(tenant):g}",
        "gpu": 0,
        "ram": 512,
    }


def _models(user) -> list[tuple[str, str]]:
    """Return names and titles of the user's newest models that can be served."""
    ready = Model.kept.filter(user=user, state=ModelState.READY).order_by("-pk")
    return list(ready.values_list("name", "title")[:MODELS_SHOWN])


def _aliases(user) -> list[tuple[str, str]]:
    """Return the URIs of the user's aliases whose versions have their files here, with titles."""
    rows = Alias.objects.filter(registered__user=user, version__model__isnull=False).order_by(
        "registered__name", "name"
    )
    names = rows.values_list("registered__name", "name", "registered__title")[:MODELS_SHOWN]
    return [(f"models:/{registered}@{alias}", title) for registered, alias, title in names]


# --- one application -------------------------------------------------------------------------------------------------
def _own(request, name: str) -> Application:
    return access.find(
        request,
        Application.objects.select_related(
            "user", "tenant", "model", "alias__registered", "rollout__model", "recording"
        ).annotate(key_count=Count("keys")),
        name,
    )


@shareable
@require_http_methods(["GET", "POST"])
def application(request, name):
    """Show one application; a POST sends `input` to it and shows its response."""
    row = _own(request, name)
    if row.trashed is not None:
        return shown_in_trash(request, row, unrestorable=why_not(lambda: trash.require_restorable(row)))
    if row.model.is_language_model and not playground.makes_embeddings(row) and chat_stream.is_asked(request):
        return chat_stream.respond(request, row)
    problems, tried = _tried(request, row)
    own = row.reading is None
    base = f"{app_address(request)}/{row.user.username}/{row.name}"
    latest = runs.latest(row)
    context = {
        "app": row,
        "rollout": getattr(row, "rollout", None),
        "traffic": request_rates.read(row),
        "problems": problems,
        **tried,
        "base": base,
        "log": reading.lines(launching.log_file(row), None, log_pages.TAIL),
        "history": history_of(row)[:HISTORY_SHOWN],
        "active": row.state in (State.CREATING, State.READY),
        "deletable": row.state in (State.READY, State.ERROR),
        "startable": row.state == State.ERROR and not row.run_name,
        "unstartable": why_not(lambda: lifecycle.require_startable(row)) if own and row.state == State.ERROR else "",
        "unmovable": why_not(lambda: rollouts.require_movable(row, restarts=row.state == State.READY)) if own else "",
        "waiting": queueing.explain(row, reader=row.reading is not None),
        "runs": latest[:RUNS_SHOWN],
        "uptime": runs.uptime(latest),
        "models": _models(row.user) if own else [],
        "aliases": _aliases(row.user) if own else [],
        "keys": row.key_count,
        "unsteady": row.state in (State.CREATING, State.DELETING),
        "counts": row.counts,
        "steps": _steps_shown(row),
        "canary_traffic": _canary_traffic(row),
        "reported": canaries.reported_of(row.rollout) if getattr(row, "rollout", None) else None,
        "most_replicas": replica_range.MAX,
        "most_target": replica_range.MAX_TARGET,
    }
    return render(request, "apps/application.html", context, status=problems.status if problems else 200)


def _tried(request, row: Application) -> tuple[Problems, dict]:
    """Return the problems of a POST, which sends `input` to the application, and what the form and its answer show."""
    problems, responses = Problems(), []
    speaks = row.model.is_language_model
    if request.method == "POST":
        text, number = request.POST.get("input", ""), request.user.pk
        send = partial(playground.chat, row, request.POST.dict()) if speaks else partial(playground.predict, row, text)
        problems = problems_of(lambda: responses.append(send(number)), ("input",))
    example = playground.example_of(row.model.signature)
    first = {"max_tokens": FIRST_TOKENS, "temperature": FIRST_TEMPERATURE} if speaks else {}
    return problems, {
        "answer": responses[0] if responses else None,
        "input": request.POST.get("input", "" if speaks else example.json),
        "chat": {**first, **request.POST.dict()} if speaks else {},
        "messages_taken": speaks and playground.takes_messages(row),
        "embeds": playground.makes_embeddings(row),
        "python_input": example.python,
        "shell_input": _shell(example.json),
        "most_sent": playground.MAX_SENT,
    }


def _canary_traffic(app: Application) -> request_rates.Traffic | None:
    """Return the requests of the application's canary, None without one."""
    rollout = getattr(app, "rollout", None)
    if rollout is None or rollout.phase != rollouts.Phase.CANARY:
        return None
    return request_rates.read_run(second_runs.as_application(rollout))


def _shell(text: str) -> str:
    """Return the argument of curl's `-d`: the quoted input, or a file name when it is long."""
    return shlex.quote(text) if 0 < len(text) <= LONGEST_COMMAND else "@input.json"


@shareable
@require_GET
def application_log(request, name):
    """Show the whole log."""
    row = _own(request, name)
    context = {"app": row, "active": row.state in (State.CREATING, State.READY)}
    return render(request, "apps/log.html", {**context, **log_pages.context_of(launching.log_file(row))})


@shareable
@require_GET
def application_log_file(request, name):
    """Send the whole log as a file."""
    return log_pages.download(launching.log_file(_own(request, name)), name)


@login_required
@require_POST
def title(request, name):
    return retitle(request, Application, name)


@login_required
@require_POST
def delete(request, name):
    """Delete an application."""
    row = _own(request, name)
    problem = attempt(lambda: trash.trash(user=request.user, name=row.name, by=request.user.username))
    if problem:
        messages.error(request, problem)
        return redirect("application", name=name)
    say_trashed(request, row)
    return redirect("applications")


def _number(given, name: str) -> int | None:
    """Return the number in a field, None in an empty one. Raises Refused."""
    text = given.get(name, "").strip()
    number = number_in(text)
    if text and number is None:
        raise Refused("must be a number", field=name)
    return number


def _plan(given) -> dict:
    """Return the plan of canaries in a form. Raises Refused."""
    steps = [(_number(given, f"percent{at}"), _number(given, f"minutes{at}")) for at in range(STEPS_SHOWN)]
    return {
        "steps": [{"percent": percent, "minutes": minutes or 0} for percent, minutes in steps if percent is not None],
        "max_errors_percent": _number(given, "max_errors_percent"),
        "max_p95_ms": _number(given, "max_p95_ms"),
        "sticky": given.get("sticky", "").strip(),
        "metric": _metric(given),
    }


def _metric(given) -> dict | None:
    """Return the rule for what callers report in a form, None without one. Raises Refused."""
    name = given.get("metric", "").strip()
    bounds = {bound: _decimal(given, f"metric_{bound}") for bound in ("min", "max")}
    return {"name": name, **bounds} if name or any(value is not None for value in bounds.values()) else None


def _decimal(given, name: str) -> float | None:
    """Return the number in a field, also with a fraction; None in an empty one. Raises Refused."""
    text = given.get(name, "").strip()
    try:
        value = float(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not math.isfinite(value):
        raise Refused("must be a number", field=name)
    return value


def _steps_shown(app: Application) -> list[dict]:
    steps = app.canary.get("steps", [])[:STEPS_SHOWN]
    return [*steps, *({} for _empty in range(STEPS_SHOWN - len(steps)))]


@login_required
@require_POST
def change(request, name):
    """Do what the button `do` says: stop, start, restart, move, again (a move that has failed), cancel (a move), share
    (of a canary), canary (how moves begin) or replicas (how many there are).
    """
    row = _own(request, name)
    key = {"user": request.user, "name": row.name, "by": request.user.username}
    verbs = {
        "stop": lambda: lifecycle.stop_app(**key),
        "start": lambda: lifecycle.start_app(**key),
        "restart": lambda: rollouts.move(may_restart=request.POST.get("may_restart") == "1", **key),
        "move": lambda: rollouts.move(**read_form(request, AppMoveIn, may_restart=_is_one), **key),
        "again": lambda: rollouts.again(row.pk, row.user.username, request.POST.get("may_restart") == "1"),
        "cancel": lambda: rollouts.cancel(**key),
        "canary": lambda: canaries.set_plan(**_plan(request.POST), **key),
        "share": lambda: canaries.set_percent(percent=_number(request.POST, "percent"), **key),
        "replicas": lambda: replicas.set_replicas(
            **read_form(request, ReplicasIn, min=int, max=int, target=int), **key
        ),
    }
    verb = verbs.get(request.POST.get("do", ""))
    problem = attempt(verb) if verb else _("Choose what to do.")
    if problem:
        messages.error(request, problem)
    return redirect("application", name=name)
