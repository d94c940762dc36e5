"""Jobs in the browser: the list with the submit form, and one job with its metrics, log and output."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime, timedelta
from itertools import islice

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

import runners
from accounts.sharing.access import readable, shareable
from kernel import storage
from kernel.messages import translate
from kernel.models import history_of
from kernel.pages import (
    attempt,
    read_form,
)
from kernel.textlog import reading

from . import lifecycle, nesting, processes, trash
from .artifacts import exporting
from .doctor import again
from .doctor.serializers import RerunIn
from .environment import log_file
from .frame import frame, own
from .log.pages import TAIL
from .models import Job, LoggedModel, Project
from .notebooks import place
from .notebooks import showing as notebooks
from .packages import showing

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FILES_SHOWN = 200
PROJECTS_OFFERED = 500
MEDIA = "media"
HISTORY_SHOWN = 50
METRICS_SHOWN = 200
NESTED_SHOWN = 50
PARAMS_SHOWN = 200
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
THUMB_BYTES = 2 << 20  # a larger image is only listed


@shareable
@require_GET
def job(request, name):
    row = own(request, name)
    folder = storage.job_dir(row.user.username, row.name)
    logged = f"{MEDIA}/" if (folder / MEDIA / "index.jsonl").is_file() else None  # these have a tab of their own
    output = (entry for entry in storage.listed(folder) if logged is None or not entry[0].startswith(logged))
    files = [_file(path, info) for path, info in islice(output, FILES_SHOWN + 1)]
    context = {
        **frame(row, "job"),
        **(_reported(request, row) if row.is_client else {}),
        "projects": [] if row.reading else projects_of(request.user),
        "metrics": list(row.metrics.order_by("-seq")[:METRICS_SHOWN]),
        "log": reading.lines(log_file(row), None, TAIL),
        "files": files[:FILES_SHOWN],
        "logged_models": _logged_models(row, folder),
        "more": len(files) > FILES_SHOWN,
        "notebook": _notebook(row, folder),
        "used_titles": _used_titles(),
        "history": history_of(row)[:HISTORY_SHOWN],
        "command": shlex.join([row.entry, *row.args]),
        "network": translate(runners.get().network(row.network_policy)),
        "packages": showing.packages_of(row),
        "output_export": exporting.export_of(row),
        "output_target": exporting.target_of(row) if row.output_uri else "",
        "waited_for": (row.started - row.created).total_seconds() // 1 if row.started else None,
    }
    return render(request, "jobs/job.html", context)


def _reported(request, row: Job) -> dict:
    """Return what the client of a run has said of it."""
    tags = row.system_tags
    known = (("mlflow.user", _("User")), ("mlflow.source.name", _("Script")), ("mlflow.source.git.commit", _("Commit")))
    near = readable(request, nesting.nested_in(row).select_related("user").order_by("-pk")[:NESTED_SHOWN])
    parents = nesting.parents_of(row).select_related("user")
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
    """Return the models that an MLflow client has logged; most jobs have none."""
    if row.heard is None and not (folder / "models").is_dir():
        return []
    return list(row.logged_models.order_by("-created")[:NESTED_SHOWN])


def _notebook(row: Job, folder) -> dict | None:
    """Return the executed notebook as it is by now; None for a job without one."""
    if not row.is_notebook:
        return None
    path = place.output_of(row.entry)
    file = storage.open_file(folder, path)
    if file is None:
        return None
    with file:
        limit = notebooks.MAX_BYTES if row.has_ended else notebooks.MAX_REFRESHED
        return {**notebooks.shown(file, path, limit), "path": path, "unfinished": not row.has_ended}


def _used_titles() -> dict[str, str]:
    return {
        "cpu": _("CPU (cores)"),
        "ram": _("Memory (MiB)"),
        "gpu": _("GPU (%)"),
        "gpu_ram": _("GPU memory (MiB)"),
        "disk": _("Written to disk (MiB)"),
    }


@shareable
@require_GET
def job_processes(request, name):
    """Answer the part of a running job's page with its processes; empty once it has ended."""
    row, found = own(request, name), []
    problem = attempt(lambda: found.append(processes.of_job(row)))
    attachable = settings.JOB_ATTACH and row.reading is None and row.tenant.allows_attach
    context = {"job": row, "doing": found[0] if found else None, "problem": problem, "attachable": attachable}
    return render(request, "jobs/_processes.html", context)


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
    row, created = own(request, name), []

    def submit() -> None:
        changes = read_form(request, RerunIn, ram=int)
        created.append(again.rerun(row, by=request.user.username, **changes))

    problem = attempt(submit)
    if problem:
        messages.error(request, problem)
    return redirect("job", name=created[0].name if created else name)


@login_required
@require_POST
def delete(request, name):
    row = own(request, name)
    deleted: list = []
    problem = attempt(lambda: deleted.append(trash.trash_one(row, request.user.username)))
    if problem:
        messages.error(request, problem)
        return redirect("job", name=name)
    say_trashed(request, 1, 0, deleted[0])
    return redirect("jobs")


# --- said and offered by the tables of runs as well ----------------------------------------------------------------
def projects_of(user) -> QuerySet:
    """Return the projects that a run can be moved to."""
    return Project.objects.filter(user=user, trashed=None).order_by("name")[:PROJECTS_OFFERED]


def unchanged(count: int) -> str:
    """Return the sentence with the number of runs that an action left as they are."""
    text = ngettext("%(n)d run was not changed.", "%(n)d runs were not changed.", count)
    return text % {"n": count}


def say_trashed(request, changed: int, left: int, at: datetime) -> None:
    """Add a message with the number of runs that were moved to the trash, and a button that restores them."""
    text = ngettext("%(n)d run moved to the trash.", "%(n)d runs moved to the trash.", changed) % {"n": changed}
    if left:
        text += " " + unchanged(left)
    messages.success(request, text, extra_tags=undo_tag(at) if changed else "")


def undo_tag(at: datetime) -> str:
    """Return what makes a button of a message: it restores what was moved to the trash at that time."""
    return f"undo-{(at - EPOCH) // timedelta(microseconds=1)}"
