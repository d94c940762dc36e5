"""Jobs in the browser: the list with the submit form, and one job with its metrics, log and output (contract 7)."""

from __future__ import annotations

import os
import shlex
from itertools import islice

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

import runners
from accounts import throttle
from accounts.sharing.access import readable, shareable, visitor_of
from datasets import sources
from kernel import storage
from kernel.messages import translate
from kernel.models import history_of
from kernel.pages import (
    Problems,
    attempt,
    fill_name,
    form_mark,
    free_name,
    made_by,
    problems_of,
    read_form,
    remember_made,
)
from kernel.registering import Registry, lines_of
from kernel.textlog import reading
from resources.models import Network, Tenant

from . import client_runs, lifecycle
from .artifacts import outputs
from .code import cloning, editing
from .doctor import again, waiting
from .doctor.serializers import RerunIn
from .environment import log_file
from .frame import frame, own
from .log.pages import TAIL
from .models import Job, LoggedModel, Runtime
from .packages import showing
from .runs import form_values, trash
from .runs import pages as runs
from .serializers import JobIn

SCRIPTS_SHOWN = 200
MORE_FIELDS = {
    "env",
    "inputs",
    "retries",
    "timeout",
    "priority",
    "preemptible",
    "runtime",
    "workers",
    "network",
    "requirements",
    "registry",
    "registry_models",
}
FILES_SHOWN = 200
MEDIA = "media"
HISTORY_SHOWN = 50
METRICS_SHOWN = 200
NESTED_SHOWN = 50
PARAMS_SHOWN = 200
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
THUMB_BYTES = 2 << 20  # a larger image is only listed


# --- the list and the form -----------------------------------------------------------------------------------------
@login_required
@require_http_methods(["GET", "POST"])
def jobs(request):
    problems = Problems()
    if request.method == "POST":
        problems = problems_of(lambda: _submit(request), JobIn().fields)
        name = made_by(request) if problems else request.POST["name"].strip()
        if name:
            return redirect("job", name=name)
    table = runs.shown(request, request.user)
    waiting.attach([row.job for row in table["page"].rows] if table["page"] else [])
    form = request.POST.dict() if request.method == "POST" else _first_values(request)
    datasets = request.POST.getlist("datasets") if request.method == "POST" else form.get("datasets", [])
    any_job = any(count for _word, _label, count in table["counts"])
    any_job = any_job or Job.objects.filter(user=request.user).exists()
    context = {
        "any": any_job,
        "problems": problems,
        "form": form,
        "chosen": datasets,
        "open": bool(problems or not any_job or {"new", "from", "entry", "dataset"} & set(request.GET)),
        "more_open": bool(MORE_FIELDS & set(problems.fields)) or _unusual(form),
        "mark": form_mark(request),
        **choices(request.user),
        **table,
    }
    return render(request, "jobs/jobs.html", context, status=problems.status if problems else 200)


def choices(user) -> dict:
    """Return the choices of the submit form: scripts, ready datasets, runtimes, and free resources."""
    scripts = islice(
        (path for path, _info in storage.files(storage.home_dir(user.username)) if path.endswith(".py")), SCRIPTS_SHOWN
    )
    tenant = Tenant.objects.get(pk=user.tenant_id)
    return {
        "scripts": list(scripts),
        "ready": sources.offered(user),
        "runtimes": Runtime.choices,
        "many_workers": runners.get().many_workers,
        "registries": Registry.choices,
        "networks": [(value, words) for value, words in Network.choices if _allowed(value, tenant)],
        "tenant_network": Network(tenant.network_policy).label,
        "free": {kind: tenant.left(kind) for kind in ("cpu", "gpu", "ram")},
    }


def _allowed(policy: str, tenant: Tenant) -> bool:
    return runners.narrowest(policy, tenant.network_policy) == policy


def _first_values(request) -> dict:
    """Return the initial form: the defaults, or (`?from=job`) the values of an earlier job.

    `?from=owner/job` is another user's, shared with the right to clone. `missing` are its datasets that are not.
    """
    form = {
        "cpu": 1,
        "gpu": 0,
        "ram": 512,
        "retries": 0,
        "timeout": "",
        "priority": 0,
        "workers": 1,
        "runtime": Runtime.PYTHON,
        "registry": Registry.VERSIONS,
        "datasets": [],
    }
    form["entry"] = request.GET.get("entry", "")
    form["datasets"] = request.GET.getlist("dataset")
    form["project"] = request.GET.get("project", "")
    wanted = request.GET.get("from", "")
    earlier = cloning.to_clone(visitor_of(request), wanted)
    if earlier is None and "/" in wanted:
        form["refused"] = wanted[:200]
    if earlier is not None:
        for name in (
            "title",
            "entry",
            "runtime",
            "gpu",
            "cpu",
            "ram",
            "retries",
            "workers",
            "network",
            "datasets",
            "requirements",
        ):
            form[name] = getattr(earlier, name)
        form["cpu"] = f"{earlier.cpu:g}"
        form["timeout"] = "" if earlier.timeout is None else str(earlier.timeout)
        form["priority"], form["preemptible"] = earlier.priority, earlier.preemptible
        form["args"] = shlex.join(earlier.args)
        form["inputs"] = "\n".join(f"{name}={source}" for name, source in earlier.job_inputs.items())
        own = earlier.reading is None
        if own:
            form["tenant"] = earlier.tenant.name
            form |= {"registry": earlier.registry, "registry_models": "\n".join(earlier.registry_models)}
            form |= {"project": earlier.project.name if earlier.project else "", "group": earlier.group}
        form["env"] = "\n".join(f"{name}={value}" for name, value in earlier.env.items()) if own else ""
        form["hidden"] = cloning.hidden_variables(earlier)
        if not own:
            owner = earlier.user.username
            wanted = [name if "/" in name else f"{owner}/{name}" for name in earlier.datasets]
            form["missing"] = sources.missing(request.user, wanted)
            form["datasets"] = [name for name in wanted if name not in form["missing"]]
            form["cloned"] = f"{owner}/{earlier.name}"
        form["name"] = free_name(Job.objects.filter(user=request.user), earlier.name)
        form |= editing.first_values(earlier, "edit" in request.GET)
    return form


def _unusual(form: dict) -> bool:
    usual = form.get("runtime", "python") == "python" and str(form.get("retries") or 0) == "0"
    usual = usual and str(form.get("workers") or 1) == "1"
    usual = usual and str(form.get("priority") or 0) == "0"
    usual = usual and form.get("registry", Registry.VERSIONS) == Registry.VERSIONS
    more = ("registry_models", "env", "requirements", "hidden", "inputs", "network", "timeout", "preemptible")
    return not usual or any(form.get(name) for name in more)


def _submit(request) -> None:
    fill_name(request, Job)
    chosen = [name for name in request.POST.getlist("datasets") if name]
    fields = read_form(
        request,
        JobIn,
        gpu=int,
        cpu=float,
        ram=int,
        retries=int,
        timeout=form_values.seconds,
        priority=int,
        preemptible=bool,
        workers=int,
        args=form_values.arguments,
        env=form_values.variables,
        inputs=form_values.variables,
        registry_models=lines_of,
        datasets=lambda _text: chosen,
        tags=runs.read_tags,
        script=editing.script_of,
    )
    visitor = visitor_of(request)
    editing.drop_unchanged(visitor, fields)
    throttle.count_submission(request.user.username)
    outputs.require(request.user.pk)
    job = lifecycle.create_job(user=request.user, visitor=visitor, by=request.user.username, **fields)
    remember_made(request, job.name)


# --- one job ---------------------------------------------------------------------------------------------------------
@shareable
@require_GET
def job(request, name):
    row = own(request, name)
    folder = storage.job_dir(row.user.username, row.name)
    logged = f"{MEDIA}/" if (folder / MEDIA / "index.jsonl").is_file() else None  # these have a tab of their own
    output = (found for found in storage.listed(folder) if logged is None or not found[0].startswith(logged))
    files = [_file(path, info) for path, info in islice(output, FILES_SHOWN + 1)]
    context = {
        **frame(row, "job"),
        **(_reported(request, row) if row.is_client else {}),
        "projects": [] if row.reading else runs.projects_of(request.user),
        "metrics": list(row.metrics.order_by("-seq")[:METRICS_SHOWN]),
        "log": reading.lines(log_file(row), None, TAIL),
        "files": files[:FILES_SHOWN],
        "logged_models": _logged_models(row, folder),
        "more": len(files) > FILES_SHOWN,
        "used_titles": _used_titles(),
        "history": history_of(row)[:HISTORY_SHOWN],
        "command": shlex.join([row.entry, *row.args]),
        "network": translate(runners.get().network(row.network_policy)),
        "packages": showing.of(row),
        "waited_for": (row.started - row.created).total_seconds() // 1 if row.started else None,
    }
    return render(request, "jobs/job.html", context)


def _reported(request, row: Job) -> dict:
    """Return what the client of a run has said of it."""
    tags = row.system_tags
    known = (("mlflow.user", _("User")), ("mlflow.source.name", _("Script")), ("mlflow.source.git.commit", _("Commit")))
    near = readable(request, client_runs.nested_in(row).select_related("user").order_by("-pk")[:NESTED_SHOWN])
    parents = client_runs.parents_of(row).select_related("user")
    return {
        "source": [(title, tags[name]) for name, title in known if tags.get(name)],
        "nested": near,
        "parent": next(iter(readable(request, parents)), None),
        "inputs": list(row.inputs.all()[:NESTED_SHOWN]),
        "params": list(row.params.order_by("name")[:PARAMS_SHOWN]),
    }


def _file(path: str, info: os.stat_result) -> dict:
    picture = path.lower().endswith(PICTURES) and info.st_size <= THUMB_BYTES
    return {"path": path, "size": info.st_size, "picture": picture}


def _logged_models(row: Job, folder) -> list[LoggedModel]:
    """Return the models that an MLflow client has logged; most jobs have heard of none."""
    if row.heard is None and not (folder / "models").is_dir():
        return []
    return list(row.logged_models.order_by("-created")[:NESTED_SHOWN])


def _used_titles() -> dict[str, str]:
    return {
        "cpu": _("CPU (cores)"),
        "ram": _("Memory (MiB)"),
        "gpu": _("GPU (%)"),
        "gpu_ram": _("GPU memory (MiB)"),
        "disk": _("Written to disk (MiB)"),
    }


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
def rerun(request, name):
    """Create the job again, with more memory if the form says so, and show the new job."""
    row, made = own(request, name), []

    def submit() -> None:
        changes = read_form(request, RerunIn, ram=int)
        made.append(again.rerun(row, by=request.user.username, **changes))

    problem = attempt(submit)
    if problem:
        messages.error(request, problem)
    return redirect("job", name=made[0].name if made else name)


@login_required
@require_POST
def delete(request, name):
    row = own(request, name)
    found: list = []
    problem = attempt(lambda: found.append(trash.trash_one(row, request.user.username)))
    if problem:
        messages.error(request, problem)
        return redirect("job", name=name)
    runs.say_trashed(request, 1, 0, found[0])
    return redirect("jobs")
