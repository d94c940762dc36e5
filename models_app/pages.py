"""The pages of models: the list with the form that creates one, and one model with its lineage."""

from __future__ import annotations

import math
import re

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.sharing import access
from accounts.sharing.access import shareable
from datasets.buckets.waiting import Slow
from datasets.script_pages import save_in_home
from jobs.models import Job
from kernel import downloads, names, notes
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import sentences
from kernel.models import history_of
from kernel.pages import (
    Listing,
    Problems,
    address,
    attempt,
    free_name,
    list_and_create,
    problems_of,
    read_form,
    retitle,
    say_trashed,
    shown_in_trash,
    why_not,
)
from resources.models import Tenant

from . import external, lifecycle, sources, trash
from .models import Model, State
from .serializers import ModelIn

HISTORY_SHOWN = 50
FILES_SHOWN = 100
SERVING_SHOWN = 50
UPLOAD_BYTES = 20 << 20  # the gateway's limit for a form
UNUSUAL = re.compile("[^A-Za-z0-9._-]")
FIELDS = ("title", "name", "src", "external", "file", "tenant", "requirements", "environment")
METRICS = ("epoch", "accuracy", "loss", "best_accuracy")
LISTING = Listing(
    heading=gettext_lazy("Models"),
    about=gettext_lazy("Job outputs and uploads that are checked to load, so that applications can serve them."),
    new=gettext_lazy("New model"),
    none=gettext_lazy("No models yet"),
    hint=gettext_lazy("When a job has finished, you can create a model from its output on its page."),
    no_match=gettext_lazy("No model matches"),
    icon="models",
)


# --- the list and the form -----------------------------------------------------------------------------------------
@login_required
@require_http_methods(["GET", "POST"])
def models(request):
    """Show the user's models; a POST creates one."""
    return list_and_create(
        request, Model.kept, LISTING, "models_app/models.html", states=State.choices, create=_create, fields=FIELDS,
        context=_form, opened_by={"new", "src"},
    )  # fmt: skip


def _form(request) -> dict:
    return {
        "form": request.POST if request.method == "POST" else _first_values(request),
        "sources": sources.of_user(request.user),
        "gateway": address(request),
    }


def _create(request) -> Model:
    if request.FILES.get("file"):
        given = {name: request.POST.get(name, "").strip() for name in FIELDS if name not in ("src", "external", "file")}
        fields = ModelIn.read({**{name: text for name, text in given.items() if text or name == "name"},
                               "src": _uploaded(request)})  # fmt: skip
    else:
        fields = read_form(request, ModelIn, external=lambda text: text == "on")
    return lifecycle.create_model(user=request.user, by=request.user.username, **fields)


def _uploaded(request) -> str:
    """Store the form's file and return its source, `home/models/{name of the model}/{name of the file}`.

    The page's script uploads files of any size through the data service instead.
    """
    file, name = request.FILES["file"], names.name(request.POST.get("name", "").strip())
    if file.size > UPLOAD_BYTES:
        raise Refused("is too large for this form; use the data client for larger files", field="file")
    if Model.objects.filter(user=request.user, name=name).exists():
        raise Refused("you already have a model named %(name)s", field="name", name=name)
    path = f"models/{name}/{UNUSUAL.sub('-', file.name)[-100:]}"
    save_in_home(request.user, path, file.read(), replace=True)
    return f"home/{path}"


def _first_values(request) -> dict:
    """Return the initial values of the form; `?src=` sets the source and proposes a name."""
    src = request.GET.get("src", "")
    return {"src": src, "name": proposed_name(request.user, src) if src else ""}


def proposed_name(user, src: str) -> str:
    """Return a free name for a model of this source, like its job or its file."""
    kind, _slash, rest = src.partition("/")
    word = rest.partition("/")[0] if kind == "jobs" else rest.rpartition("/")[2].partition(".")[0]
    return free_name(Model.objects.filter(user=user), word)


# --- one model -------------------------------------------------------------------------------------------------------
def _own(request, name: str) -> Model:
    return access.find(request, Model.objects.select_related("user", "tenant"), name)


@shareable
@require_http_methods(["GET", "POST"])
def model(request, name):
    """Show one model; a POST saves its notes."""
    row = _own(request, name)
    if row.trashed is not None:
        return shown_in_trash(request, row, undeletable=why_not(lambda: lifecycle.require_unserved(row)))
    problems = Problems()
    if request.method == "POST":
        save = lambda: lifecycle.set_notes(user=request.user, name=row.name, **notes.from_page(request))  # noqa: E731
        problems = problems_of(save, ("notes",))
        if not problems:
            return redirect("model", name=name)
    serving = list(row.served_by.filter(trashed=None).order_by("-pk")[:SERVING_SHOWN])
    lineage = row.lineage if isinstance(row.lineage, dict) else {}
    job = lineage.get("job")
    checksums = row.checksums if isinstance(row.checksums, dict) else {}
    in_bucket = _in_bucket(request, row)
    context = {
        "model": row,
        "problems": problems,
        "notes": request.POST.get("notes", "") if problems else row.notes,
        "most_notes": notes.MAX,
        "serving": serving,
        "lineage": lineage,
        "job_there": bool(job) and Job.objects.filter(user=row.user, name=job).exists(),
        "numbers": {name: lineage.get("metrics", {}).get(name) for name in METRICS},
        "files": sorted((checksums or in_bucket["entries"]).items())[:FILES_SHOWN],
        "more": len(checksums or in_bucket["entries"]) > FILES_SHOWN,
        **in_bucket,
        "history": history_of(row)[:HISTORY_SHOWN],
        "deletable": row.state in lifecycle.STEADY,
        "undeletable": "" if request.reading else why_not(lambda: trash.require_free(row)),
        "unsteady": row.state in (State.CREATING, State.DELETING),
        "app_name": free_name(row.user.applications, row.name) if row.state == State.READY else "",
        "cpu": cpu_that_fits(row.tenant),
    }
    return render(request, "models_app/model.html", context, status=problems.status if problems else 200)


def _in_bucket(request, row: Model) -> dict:
    """Return what the page shows of an external model: its objects, and with `?compare=1` how the bucket differs."""
    if not row.external:
        return {"entries": {}}
    shown: dict = {
        "entries": {entry.path: {"size": entry.size} for entry in external.listed(row).entries},
        "in_cache": bool(external.rom_of(row)),
    }
    if request.method == "GET" and request.GET.get("compare"):
        try:
            found = external.compare(row)
            shown["difference"] = found
            shown["differing"] = [*found.changed, *found.missing][:FILES_SHOWN]
        except (Refused, Slow) as problem:
            shown["uncompared"] = problem.msg
    return shown


@shareable
@require_GET
def file(request, name, path):
    """Send the browser to a file of an external model in its bucket, or back to the model with the reason why not."""
    row = _own(request, name)
    if not row.external or row.trashed is not None:
        raise Http404
    try:
        address = external.address(row, path)
    except Missing:
        raise Http404
    except (Refused, Slow) as problem:
        messages.error(request, sentences(problem.problem) if isinstance(problem, Refused) else problem.msg)
        return redirect(access.address(row))
    response = redirect(address) if address else HttpResponse(content_type=downloads.BYTES)
    response["Cache-Control"] = "no-store"
    return response


def cpu_that_fits(tenant: Tenant) -> float:
    """Return the CPU to propose for an application: one core, or what is left of one; one also if nothing is left."""
    left = math.floor(10 * float(tenant.left("cpu"))) / 10
    return min(1.0, left) if left >= 0.1 else 1.0


@login_required
@require_POST
def title(request, name):
    return retitle(request, Model, name)


@login_required
@require_POST
def delete(request, name):
    """Delete a model."""
    row = _own(request, name)
    problem = attempt(lambda: trash.trash(user=request.user, name=row.name, by=request.user.username))
    if problem:
        messages.error(request, problem)
        return redirect("model", name=name)
    say_trashed(request, row)
    return redirect("models")
