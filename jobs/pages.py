"""Jobs in the browser: the list with the submit form, and one job with its metrics, log and output (contract 7)."""

from __future__ import annotations

import shlex

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from datasets.models import Dataset
from datasets.models import State as DatasetState
from mlp.kernel import storage
from mlp.kernel.models import history_of
from mlp.kernel.pages import attempt, page_of, read_form
from mlp.runners import tail

from . import environment, lifecycle
from .models import Job, Runtime, State
from .serializers import JobIn

SCRIPTS_SHOWN = 200
FILES_SHOWN = 200
LOG_LINES = 200


@login_required
@require_http_methods(["GET", "POST"])
def jobs(request):
    error = ""
    if request.method == "POST":
        error = attempt(lambda: _submit(request))
        if not error:
            return redirect("job", name=request.POST["name"].strip())
    rows = Job.objects.filter(user=request.user).order_by("-pk")
    state = request.GET.get("state", "")
    if state in State.values:
        rows = rows.filter(state=state)
    context = {
        "page": page_of(request, rows),
        "states": State.choices,
        "state": state,
        "error": error,
        "form": request.POST or {"cpu": 1, "gpu": 0, "ram": 512, "retries": 0},
        "chosen": request.POST.getlist("datasets"),
        **_choices(request.user),
    }
    return render(request, "jobs/jobs.html", context, status=403 if error else 200)


def _choices(user) -> dict:
    """What the submit form offers: the user's scripts, ready datasets and the runtimes."""
    scripts = []
    for path, _info in storage.files(storage.home_dir(user.username)):
        if path.endswith(".py"):
            scripts.append(path)
        if len(scripts) >= SCRIPTS_SHOWN:
            break
    ready = Dataset.objects.filter(user=user, state=DatasetState.READY).order_by("name")
    return {"scripts": scripts, "ready": ready.values_list("name", flat=True), "runtimes": Runtime.choices}


def _submit(request) -> None:
    chosen = [name for name in request.POST.getlist("datasets") if name]
    fields = read_form(
        request,
        JobIn,
        gpu=int,
        cpu=float,
        ram=int,
        retries=int,
        args=shlex.split,
        datasets=lambda _text: chosen,
    )
    lifecycle.create_job(user=request.user, by=request.user.username, **fields)


def _own(request, name: str) -> Job:
    row = Job.objects.filter(user=request.user, name=name).select_related("user", "tenant").first()
    if row is None:
        raise Http404
    return row


@login_required
@require_GET
def job(request, name):
    row = _own(request, name)
    files = []
    for path, info in storage.files(storage.job_dir(request.user.username, name)):
        files.append({"path": path, "size": info.st_size})
        if len(files) > FILES_SHOWN:
            break
    context = {
        "job": row,
        "metrics": list(row.metrics.order_by("-seq")[:20]),
        "log": tail(environment.log_path(row), LOG_LINES),
        "log_size": _size(environment.log_path(row)),
        "files": files[:FILES_SHOWN],
        "more": len(files) > FILES_SHOWN,
        "history": history_of(row)[:50],
        "command": shlex.join([row.entry, *row.args]),
        "active": row.state in (State.CREATING, State.RUNNING),
        "deletable": row.state in (State.FINISHED, State.ERROR),
    }
    return render(request, "jobs/job.html", context)


def _size(path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@login_required
@require_POST
def cancel(request, name):
    problem = attempt(lambda: lifecycle.cancel(user=request.user, name=name, by=request.user.username))
    if problem:
        messages.error(request, problem)
    return redirect("job", name=name)


@login_required
@require_POST
def delete(request, name):
    problem = attempt(lambda: lifecycle.delete_job(user=request.user, name=name, by=request.user.username))
    if problem:
        messages.error(request, problem)
        return redirect("job", name=name)
    messages.success(request, _("The job %(name)s is being deleted.") % {"name": name})
    return redirect("jobs")
