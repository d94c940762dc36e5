"""The pages of workspaces: the list with its form, one workspace with its log, and the way into it."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from datasets import sources
from jobs import form_values
from jobs.log import pages as log_pages
from jobs.models import Job
from kernel.models import history_of
from kernel.pages import (
    Listing,
    attempt,
    free_name,
    list_and_create,
    named,
    read_form,
    retitle,
    say_trashed,
    shown_in_trash,
    why_not,
)
from kernel.textlog import reading
from models_app.models import Model
from models_app.pages import cpu_that_fits
from resources import products
from resources.models import Tenant

from . import addresses, entering, guests, launching, lifecycle, notebooks, packages, policy, trash
from .models import Guest, State, Workspace
from .serializers import WorkspaceIn

HISTORY_SHOWN = 50
UNSTEADY = (State.CREATING, State.STOPPING, State.DELETING)
MARK = re.compile(r"[0-9a-f]{64}")
LISTING = Listing(
    heading=gettext_lazy("Workspaces"),
    new=gettext_lazy("New workspace"),
    none=gettext_lazy("No workspaces yet"),
    hint=gettext_lazy("A workspace is JupyterLab beside your data: notebooks, terminals and files in the browser."),
    no_match=gettext_lazy("No workspace matches"),
    icon="notebook",
)


@login_required
@require_http_methods(["GET", "POST"])
def workspaces(request):
    """Show the user's workspaces; a POST creates one."""
    return list_and_create(
        request, Workspace.kept.select_related("user"), LISTING, "workspaces/workspaces.html", states=State.choices,
        create=_create, fields=WorkspaceIn().fields, context=_form, opened_by={"new", "dataset", "job", "model"},
    )  # fmt: skip


def _form(request) -> dict:
    tenant = Tenant.objects.get(pk=request.user.tenant_id)
    form = _first_values(request, tenant)
    invitations = Guest.objects.filter(user=request.user).standing()
    usual_idle, usual_hours = policy.most(tenant)
    return {
        "form": {**form, **request.POST.dict()},
        "invitations": invitations.select_related("workspace__user", "workspace__tenant").order_by("-pk"),
        "ready": sources.offered(request.user, only_stored=True),
        "chosen": request.POST.getlist("datasets") if request.method == "POST" else form["datasets"],
        "most_idle": settings.WORKSPACE_IDLE_MINUTES,
        "most_hours": settings.WORKSPACE_HOURS,
        "usual_idle": usual_idle,  # of the tenant that is chosen at first
        "usual_hours": usual_hours,
        "free": {kind: tenant.left(kind) for kind in ("cpu", "gpu", "ram")},
        "gpu_types": products.offered(),
    }


def _create(request) -> Workspace:
    chosen = [name for name in request.POST.getlist("datasets") if name]
    fields = read_form(
        request, WorkspaceIn, gpu=int, cpu=float, ram=int, idle_minutes=int, hours=int, datasets=lambda _text: chosen
    )
    return lifecycle.create_workspace(user=request.user, by=request.user.username, **fields)


def _first_values(request, tenant: Tenant) -> dict:
    """Return the initial values of the form: `?dataset=`, `?job=` and `?model=` say what the workspace opens."""
    dataset, mine = request.GET.getlist("dataset"), {"user": request.user}
    job, model = named(request, Job.objects.filter(**mine), "job"), named(request, Model.kept.filter(**mine), "model")
    stem = dataset[0].rpartition("/")[2].partition("@")[0] if dataset else ""
    stem = (job or model).name if job or model else stem
    values = {"cpu": f"{cpu_that_fits(tenant):g}", "gpu": 0, "ram": 2048, "datasets": dataset, "job": "", "model": ""}
    if model is not None:
        values |= {"model": model.name, "environment": model.environment}
    if job is not None:
        values |= {"job": job.name, "cpu": f"{job.cpu:g}", "gpu": job.gpu, "ram": max(job.ram, 1024)}
        values |= {"gpu_type": job.gpu_type}
        stored = sources.stored(request.user, job.datasets)
        values |= {"datasets": stored, "environment": job.environment}
        values |= {"left_out": [name for name in job.datasets if name not in stored]}
    values["name"] = free_name(Workspace.objects.filter(user=request.user), stem) if stem else ""
    return values


def own(request, name: str) -> Workspace:
    """Return the user's workspace of that name. Raises Http404."""
    if "\x00" in name:
        raise Http404
    return get_object_or_404(
        Workspace.objects.select_related("user", "tenant", "job", "model"), user=request.user, name=name
    )


@login_required
@require_GET
def workspace(request, name):
    """Show one workspace."""
    row = own(request, name)
    if row.trashed is not None:
        return shown_in_trash(request, row)
    context = {
        "workspace": row,
        "address": addresses.address_of(request, row),
        "log": reading.lines(launching.log_file(row), None, log_pages.TAIL),
        "notebooks": notebooks.listed(row),
        "has_ssh": packages.have_ssh(),
        "history": history_of(row)[:HISTORY_SHOWN],
        "active": row.is_live,
        "startable": row.state in (State.STOPPED, State.ERROR),
        "unstartable": why_not(lambda: lifecycle.require_startable(row)) if not row.is_live else "",
        "unsteady": row.state in UNSTEADY,
        "guests": row.guests.select_related("user").order_by("user__username"),
        "uninvitable": why_not(lambda: guests.require_open(row)),
        "idle": row.stops is not None and row.ends != row.stops and row.tenant.allows_workspaces,
    }
    return render(request, "workspaces/workspace.html", context)


@login_required
@require_GET
def workspace_log(request, name):
    """Show the whole log."""
    row = own(request, name)
    context = {"workspace": row, "active": row.is_live, **log_pages.context_of(launching.log_file(row))}
    return render(request, "workspaces/log.html", context)


@login_required
@require_GET
def workspace_log_file(request, name):
    """Send the whole log as a file."""
    return log_pages.download(launching.log_file(own(request, name)), name)


@login_required
@require_POST
def title(request, name):
    return retitle(request, Workspace, name)


@login_required
@require_POST
def change(request, name):
    """Do what the button `do` says: stop, start or keep."""
    row = own(request, name)
    key = {"user": request.user, "name": row.name, "by": request.user.username}
    verbs = {
        "stop": lambda: lifecycle.stop_workspace(**key),
        "start": lambda: lifecycle.start_workspace(**key),
        "keep": lambda: lifecycle.keep(**key),
    }
    verb = verbs.get(request.POST.get("do", ""))
    problem = attempt(verb) if verb else _("Choose what to do.")
    if problem:
        messages.error(request, problem)
    return redirect("workspace", name=name)


@login_required
@require_POST
def run_notebook(request, name):
    """Submit a job that executes a notebook of the workspace, and show it."""
    row, made = own(request, name), []

    def submit() -> None:
        args = form_values.arguments(request.POST.get("args", ""))
        made.append(notebooks.submit(row, request.POST.get("entry", ""), args, by=request.user.username))

    problem = attempt(submit)
    if problem:
        messages.error(request, problem)
        return redirect("workspace", name=name)
    return redirect("job", name=made[0].name)


@login_required
@require_POST
def delete(request, name):
    """Move a workspace to the trash."""
    row = own(request, name)
    problem = attempt(lambda: trash.trash(user=request.user, name=row.name, by=request.user.username))
    if problem:
        messages.error(request, problem)
        return redirect("workspace", name=name)
    say_trashed(request, row)
    return redirect("workspaces")


@login_required
@require_GET
def enter(request, name):
    """Let the owner's browser in."""
    return let_in(request, own(request, name))


def let_in(request, row: Workspace):
    """Send the browser back to the workspaces' gateway with a code (entering.py), for the user of the request."""
    mark = request.GET.get("mark", "")
    if not MARK.fullmatch(mark):
        return redirect(addresses.address_of(request, row))
    code = entering.make_code(row, request.user.pk, request.session.session_key, mark)
    query = urlencode({"code": code, "next": request.GET.get("next", "")[:2000]})
    origin = addresses.origin(request, row.user.username)
    response = redirect(f"{origin}/{row.user.username}/{row.name}/-enter?{query}")
    response["Cache-Control"], response["Referrer-Policy"] = "no-store", "no-referrer"
    return response
