"""Jobs in the browser: the list with the submit form, and one job with its metrics, log and output (contract 7)."""

from __future__ import annotations

import io
import json
import os
import shlex
from itertools import islice

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import FileResponse, Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

import runners
from datasets.models import Dataset
from datasets.models import State as DatasetState
from kernel import storage
from kernel.errors import Refused
from kernel.messages import translate
from kernel.models import history_of
from kernel.pages import (
    Problems,
    attempt,
    filtered,
    form_mark,
    free_name,
    made_by,
    page_of,
    problems_of,
    read_form,
    remember_made,
)
from resources.models import Network, Tenant

from . import lifecycle, logs
from .models import Job, Runtime, State
from .serializers import JobIn

SCRIPTS_SHOWN = 200
DATASETS_SHOWN = 200
FILES_SHOWN = 200
HISTORY_SHOWN = 50
METRICS_SHOWN = 200
LOG_SHOWN = 64 << 10  # bytes
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
THUMB_BYTES = 2 << 20  # a larger image is only listed
ACTIVE = (State.CREATING, State.RUNNING)


# --- the list and the form -----------------------------------------------------------------------------------------
@login_required
@require_http_methods(["GET", "POST"])
def jobs(request):
    problems = Problems()
    if request.method == "POST":
        problems = problems_of(lambda: _submit(request), set(JobIn().fields) - {"tenant"})
        name = made_by(request) if problems else request.POST["name"].strip()
        if name:
            return redirect("job", name=name)
    mine = Job.objects.filter(user=request.user)
    rows, chosen = filtered(request, mine.order_by("-pk"), State.values)
    page = page_of(request, rows)
    form = request.POST.dict() if request.method == "POST" else _first_values(request)
    datasets = request.POST.getlist("datasets") if request.method == "POST" else form.get("datasets", [])
    any_job = bool(page.object_list) or mine.exists()
    context = {
        "page": page,
        "states": State.choices,
        "any": any_job,
        "problems": problems,
        "form": form,
        "chosen": datasets,
        "open": bool(problems or not any_job or {"new", "from", "entry", "dataset"} & set(request.GET)),
        "more_open": bool({"env", "retries", "runtime", "workers", "network"} & set(problems.fields)) or _unusual(form),
        "mark": form_mark(request),
        **_choices(request.user),
        **chosen,
    }
    return render(request, "jobs/jobs.html", context, status=problems.status if problems else 200)


def _choices(user) -> dict:
    """Return the choices of the submit form: scripts, ready datasets, runtimes, and free resources."""
    scripts = islice(
        (path for path, _info in storage.files(storage.home_dir(user.username)) if path.endswith(".py")), SCRIPTS_SHOWN
    )
    ready = Dataset.objects.filter(user=user, state=DatasetState.READY).order_by("name")
    tenant = Tenant.objects.get(pk=user.tenant_id)
    return {
        "scripts": list(scripts),
        "ready": list(ready.values("name", "size")[:DATASETS_SHOWN]),
        "runtimes": Runtime.choices,
        "many_workers": runners.get().many_workers,
        "networks": [(value, words) for value, words in Network.choices if _allowed(value, tenant)],
        "tenant_network": Network(tenant.network_policy).label,
        "free": {kind: tenant.left(kind) for kind in ("cpu", "gpu", "ram")},
    }


def _allowed(policy: str, tenant: Tenant) -> bool:
    return runners.narrowest(policy, tenant.network_policy) == policy


def _first_values(request) -> dict:
    """Return the initial form: the defaults, or (`?from=job`) the values of an earlier job."""
    form = {"cpu": 1, "gpu": 0, "ram": 512, "retries": 0, "workers": 1, "runtime": Runtime.PYTHON, "datasets": []}
    form["entry"] = request.GET.get("entry", "")
    form["datasets"] = request.GET.getlist("dataset")
    earlier = Job.objects.filter(user=request.user, name=request.GET.get("from", "").replace("\x00", "")).first()
    if earlier is not None:
        for name in ("entry", "runtime", "gpu", "cpu", "ram", "retries", "workers", "network", "datasets"):
            form[name] = getattr(earlier, name)
        form["cpu"] = f"{earlier.cpu:g}"
        form["args"] = shlex.join(earlier.args)
        form["env"] = "\n".join(f"{name}={value}" for name, value in earlier.env.items())
        form["name"] = free_name(Job.objects.filter(user=request.user), earlier.name)
    return form


def _unusual(form: dict) -> bool:
    usual = form.get("runtime", "python") == "python" and str(form.get("retries") or 0) == "0"
    usual = usual and str(form.get("workers") or 1) == "1"
    return not usual or bool(form.get("env") or form.get("network"))


def _submit(request) -> None:
    chosen = [name for name in request.POST.getlist("datasets") if name]
    fields = read_form(
        request,
        JobIn,
        gpu=int,
        cpu=float,
        ram=int,
        retries=int,
        workers=int,
        args=_arguments,
        env=_variables,
        datasets=lambda _text: chosen,
    )
    job = lifecycle.create_job(user=request.user, by=request.user.username, **fields)
    remember_made(request, job.name)


def _arguments(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise Refused("a quotation mark is not closed", field="args")


def _variables(text: str) -> dict[str, str]:
    """Parse one `NAME=value` a line. Raises Refused."""
    variables = {}
    for line in text.splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals:
                raise Refused("each line must be NAME=value", field="env")
            variables[name.strip()] = value
    return variables


# --- one job ---------------------------------------------------------------------------------------------------------
def own(request, name: str) -> Job:
    rows = Job.objects.filter(user=request.user, name=name).select_related("user", "tenant")
    row = rows.first() if "\x00" not in name else None
    if row is None:
        raise Http404
    return row


@login_required
@require_GET
def job(request, name):
    row = own(request, name)
    output = storage.files(storage.job_dir(request.user.username, row.name))
    files = [_file(path, info) for path, info in islice(output, FILES_SHOWN + 1)]
    log, log_start, _next, cut = logs.tail(row, LOG_SHOWN)
    context = {
        "job": row,
        "metrics": list(row.metrics.order_by("-seq")[:METRICS_SHOWN]),
        "log": log,
        "log_start": log_start,
        "log_cut": cut,
        "files": files[:FILES_SHOWN],
        "more": len(files) > FILES_SHOWN,
        "used_titles": json.dumps(_used_titles()),
        "history": history_of(row)[:HISTORY_SHOWN],
        "command": shlex.join([row.entry, *row.args]),
        "network": translate(runners.get().network(row.network_policy)),
        "waits": row.state == State.CREATING and not row.reserved,
        "waited_for": (row.started - row.created).total_seconds() // 1 if row.started else None,
        "active": row.state in ACTIVE,
        "deletable": row.state in (State.FINISHED, State.ERROR),
    }
    return render(request, "jobs/job.html", context)


def _file(path: str, info: os.stat_result) -> dict:
    picture = path.lower().endswith(PICTURES) and info.st_size <= THUMB_BYTES
    return {"path": path, "size": info.st_size, "picture": picture}


def _used_titles() -> dict[str, str]:
    return {
        "cpu": _("CPU (cores)"),
        "ram": _("Memory (MiB)"),
        "gpu": _("GPU (%)"),
        "gpu_ram": _("GPU memory (MiB)"),
        "disk": _("Written to disk (MiB)"),
    }


@login_required
@require_GET
def whole_log(request, name):
    """Send the whole log as a file, whatever its size (REST returns it in chunks)."""
    file = logs.open_log(own(request, name))
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox"}
    options = {"as_attachment": True, "filename": f"{name}.log", "content_type": "text/plain; charset=utf-8"}
    return FileResponse(file or io.BytesIO(), headers=headers, **options)


@login_required
@require_POST
def cancel(request, name):
    row = own(request, name)
    problem = attempt(lambda: lifecycle.cancel(user=request.user, name=row.name, by=request.user.username))
    if problem:
        messages.error(request, problem)
    return redirect("job", name=name)


@login_required
@require_POST
def delete(request, name):
    row = own(request, name)
    problem = attempt(lambda: lifecycle.delete_job(user=request.user, name=row.name, by=request.user.username))
    if problem:
        messages.error(request, problem)
        return redirect("job", name=name)
    messages.success(request, _("The job %(name)s is being deleted.") % {"name": name})
    return redirect("jobs")
