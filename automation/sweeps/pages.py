"""Sweeps in the browser: the list with its form, and one sweep with its plots and trials."""

from __future__ import annotations

import json
from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import F, FloatField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.sharing import access
from accounts.sharing.access import shareable, visitor_of
from automation import first_values
from automation.models import Sweep, SweepState
from jobs.submit_form import choices
from kernel.models import history_of
from kernel.pages import Listing, act, free_name, list_and_create, named, page_of, read_form, retitle, why_not

from . import forms, lifecycle, options, plots, reading
from .serializers import ExtendIn, SweepIn, TrialIn

FIELDS = {
    "title", "name", "space", "trials", "parallel", "sampler", "pruner", "yaml", "job.entry", "job.args", "job.cpu",
    "job.gpu", "job.ram", "job.datasets", "job.image", "job.gpu_type", "env", "timeout", "args",
}  # fmt: skip
HISTORY_SHOWN = 20
COMPARED = 10
LISTING = Listing(
    heading=gettext_lazy("Sweeps"),
    about=gettext_lazy("A sweep searches for the best arguments of a script: each trial is a job."),
    new=gettext_lazy("New sweep"),
    none=gettext_lazy("No sweeps yet"),
    hint=gettext_lazy("Name a script that reports a metric, and say which of its arguments to search."),
    no_match=gettext_lazy("No sweep matches"),
    icon="chart",
)


@login_required
@require_http_methods(["GET", "POST"])
def sweeps(request):
    """Show the user's sweeps, and the form of a new one, which a POST creates."""
    return list_and_create(
        request, Sweep.objects.select_related("user"), LISTING, "automation/sweeps.html", states=SweepState.choices,
        create=_create, fields=FIELDS, context=_form, opened_by={"new", "from", "like", "entry"},
        complete=reading.filled, shown_field=lambda name: name.removeprefix("job."),
    )  # fmt: skip


def _form(request) -> dict:
    return {
        **first_values.shown(request, _first_values),
        "full": why_not(lambda: lifecycle.require_room(request.user)),
        "samplers": list(options.SAMPLERS),
        "pruners": list(options.PRUNERS),
        **choices(request.user),
    }


def _create(request) -> Sweep:
    fields = SweepIn.read(forms.body_of(request.POST))
    return lifecycle.create_sweep(user=request.user, by=request.user.username, visitor=visitor_of(request), **fields)


def _first_values(request) -> dict:
    """Return the form at first: an example, the arguments and resources of `?from=job`, or all of `?like=sweep`."""
    form = {**forms.FIRST, "entry": request.GET.get("entry", "")}
    mine = Sweep.objects.filter(user=request.user)
    earlier = named(request, mine, "like")
    if earlier is not None:
        earlier.name = free_name(mine, earlier.name)
        return {**form, "yaml": forms.as_yaml(earlier, earlier.job)}
    return form | first_values.of_job(request, mine)


# --- one sweep -------------------------------------------------------------------------------------------------------
def _own(request, name: str) -> Sweep:
    """Return the visitor's sweep of that name; at `/u/{owner}/…` the owner's, if the visitor may read it.

    Raises Http404.
    """
    return access.find(request, Sweep.objects.select_related("user", "snapshot"), name)


@shareable
@require_GET
def sweep(request, name):
    """Show one sweep: its best trial, its plots, and its trials. `?order=best` has the best trials first."""
    row = reading.filled([_own(request, name)])[0]
    rows, order = _ordered(row, request.GET.get("order", ""))
    state = request.GET.get("state", "")
    page = page_of(request, rows.filter(state=state) if row.counts.get(state) else rows)
    ended = row.trials_wanted and sum(row.counts.values()) - row.counts["waiting"] - row.counts["running"]
    context = {
        "sweep": row,
        "no_more": why_not(lambda: lifecycle.require_points(row, row.trials_wanted + 1)),
        "page": page,
        "trials": reading.marked(row, page.object_list),
        "order": order,
        "state": state if row.counts.get(state) else "",
        "ended": ended,
        "percent": min(100, round(100 * ended / row.trials_wanted)),
        "data": json.dumps(plots.plots_of(row)),
        "bars": plots.bars(row),
        "one": len(row.objectives) == 1,
        "best_job": row.best_trials[0].job if len(row.best_trials) == 1 else None,
        "compared": _compared(row),
        "text": forms.as_yaml(row, row.shown_job),
        "history": history_of(row)[:HISTORY_SHOWN],
        "entry": row.job.get("entry", ""),
    }
    return render(request, "automation/sweep.html", context)


def _ordered(row: Sweep, order: str) -> tuple:
    rows = reading.trials_of(row)
    if order == "best" and len(row.objectives) == 1:
        value = F("result").asc if row.directions[0] == "minimize" else F("result").desc
        number = Cast(KT("values__0"), FloatField())
        return rows.annotate(result=number).order_by(value(nulls_last=True), "number"), "best"
    return rows.order_by("-number"), "new"


def _compared(row: Sweep) -> list[str]:
    """Return the jobs of the best trials, for the comparison of runs."""
    rows = _ordered(row, "best")[0].exclude(job=None).exclude(values__isnull=True)
    return list(rows.values_list("job__name", flat=True)[:COMPARED])


@login_required
@require_POST
def title(request, name):
    return retitle(request, Sweep, name)


@login_required
@require_POST
def change(request, name):
    """Pause, resume, extend, cancel or delete a sweep, or add a trial to it; `do` says what."""
    return act(request, CHANGES, _own(request, name), redirect("sweep", name=name))


def _pause(request, row: Sweep) -> None:
    lifecycle.pause(user=row.user, name=row.name, by=request.user.username)


def _resume(request, row: Sweep) -> None:
    lifecycle.resume(user=row.user, name=row.name, by=request.user.username)


def _extend(request, row: Sweep) -> None:
    given = read_form(request, ExtendIn, trials=int, parallel=int)
    lifecycle.extend(user=row.user, name=row.name, by=request.user.username, **given)


def _cancel(request, row: Sweep) -> None:
    lifecycle.cancel(user=row.user, name=row.name, by=request.user.username)


def _delete(request, row: Sweep) -> HttpResponse:
    trash = "trash" in request.POST
    lifecycle.delete_sweep(user=row.user, name=row.name, by=request.user.username, trash_runs=trash)
    messages.success(request, _("The sweep %(name)s is being deleted.") % {"name": row.name})
    return redirect("sweeps")


def _trial(request, row: Sweep) -> None:
    values = TrialIn.read({"params": forms.params_of(row, request.POST)})["params"]
    trial = lifecycle.add_trial(user=row.user, name=row.name, values=values, by=request.user.username)
    messages.success(request, _("Trial %(number)s is added.") % {"number": trial.number})


CHANGES: dict[str, Callable] = {
    "pause": _pause,
    "resume": _resume,
    "extend": _extend,
    "cancel": _cancel,
    "delete": _delete,
    "trial": _trial,
}
