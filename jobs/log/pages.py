"""The page of a log, and its download. The parts for any log are also called by apps.pages."""

from __future__ import annotations

import io
from functools import partial

from django.http import FileResponse, Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.sharing import access
from accounts.sharing.access import shareable
from jobs.environment import log_file, workers_with_logs
from jobs.frame import frame, own
from jobs.models import Job
from kernel.textlog import reading
from kernel.textlog.files import LogFile

from .differences import differences
from .usual_way import usual_way

TAIL = 8  # lines on an object's own page
SHOWN = 200  # lines in the page as it is sent
SAFE = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox"}


@shareable
@require_GET
def job_log(request, name):
    """Show the whole log."""
    row = own(request, name)
    workers, worker = workers_with_logs(row), _worker(request, row)
    context = {**frame(row, "job_log"), **context_of(log_file(row, worker))}
    if workers:
        context |= {"workers": [0, *workers], "worker": worker}
    return render(request, "jobs/log.html", context)


@shareable
@require_GET
def job_log_file(request, name):
    """Send the whole log as a file."""
    row = own(request, name)
    worker = _worker(request, row)
    return download(log_file(row, worker), f"{name}-worker-{worker}" if worker else name)


@shareable
@require_GET
def job_log_differences(request, name):
    """Show how the log differs from those of earlier finished runs of the script."""
    row = own(request, name)
    difference = differences(row, partial(access.readable, request) if request.reading else list)
    return render(
        request, "jobs/log_differences.html", {**frame(row, "job_log"), "differences": difference, "earlier": False}
    )


@shareable
@require_GET
def job_usual_way(request, name):
    """Answer the part of a failed job's page that says where the run left its usual way."""
    row = own(request, name)
    found = usual_way(row, partial(access.readable, request) if request.reading else list)
    return render(request, "jobs/_usual_way.html", {"job": row, "found": found})


def _worker(request, row: Job) -> int:
    """Return the number of the worker in `?worker=` whose log is asked for. Raises Http404."""
    text = request.GET.get("worker") or "0"
    if text != "0" and text not in map(str, workers_with_logs(row)):
        raise Http404
    return int(text)


def context_of(log: LogFile) -> dict:
    """Return the context of `_logview.html`."""
    return {"log": reading.lines(log, None, SHOWN), "runs": reading.runs(log)}


def download(log: LogFile, name: str) -> HttpResponse:
    """Return the whole log as a download, whatever its size (REST returns it in chunks)."""
    options = {"as_attachment": True, "filename": f"{name}.log", "content_type": "text/plain; charset=utf-8"}
    return FileResponse(log.open() or io.BytesIO(), headers=SAFE, **options)
