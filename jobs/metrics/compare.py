"""Several jobs side by side, as a page and as CSV. Part of the jobs' pages (contract 7)."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Iterable, Iterator

from django.contrib.auth.decorators import login_required
from django.http import Http404, StreamingHttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from jobs.models import Job

from . import series

MOST_JOBS = 10
OFFERED = 50
COLUMNS = ("job", "series", "step", "value", "time", "attempt")


@login_required
@require_GET
def compare(request):
    """Show settings, last values and one chart for each series of `?job=a&job=b`, and offer other jobs to add."""
    chosen = _chosen(request)
    others = Job.objects.filter(user=request.user).exclude(pk__in=[job.pk for job in chosen]).order_by("-pk")
    context = {
        "jobs": [(index, job) for index, job in enumerate(chosen)],
        "settings": _rows(chosen, _settings(chosen)) if chosen else [],
        "values": _values(chosen),
        "titles": json.dumps({name: str(title) for name, title in series.TITLES.items()}),
        "others": list(others[:OFFERED]),
        "most": MOST_JOBS,
        "active": any(not job.has_ended for job in chosen),
    }
    return render(request, "jobs/compare.html", context)


@login_required
@require_GET
def compare_csv(request):
    """Return every reported number of the chosen jobs, one a line."""
    chosen = _chosen(request)
    if not chosen:
        raise Http404
    name = "-".join(job.name for job in chosen)[:80]
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"', "X-Content-Type-Options": "nosniff"}
    lines = csv.writer(_Echo())
    rows = (lines.writerow(row) for row in _all_values(chosen))
    return StreamingHttpResponse(rows, content_type="text/csv; charset=utf-8", headers=headers)


class _Echo:
    """A file that returns what is written to it, so that csv makes lines one by one."""

    def write(self, text: str) -> str:
        return text


def _chosen(request) -> list[Job]:
    """Return the named jobs of this user, in the order of the address, each once."""
    names = list(dict.fromkeys(name for name in request.GET.getlist("job") if "\x00" not in name))[:MOST_JOBS]
    jobs = {job.name: job for job in Job.objects.filter(user=request.user, name__in=names)}
    return [jobs[name] for name in names if name in jobs]


def _settings(jobs: list[Job]) -> Iterable[tuple[str, list[str]]]:
    yield _("Script"), [job.entry for job in jobs]
    yield _("Arguments"), [shlex.join(job.args) for job in jobs]
    yield _("Datasets"), [", ".join(job.datasets) for job in jobs]
    yield _("Runtime"), [job.get_runtime_display() for job in jobs]
    yield _("CPU"), [f"{job.cpu:g}" for job in jobs]
    yield _("GPU"), [str(job.gpu) for job in jobs]
    yield _("Memory (MiB)"), [str(job.ram) for job in jobs]
    for name in sorted({name for job in jobs for name in job.env}):
        yield name, [str(job.env.get(name, "")) for job in jobs]


def _rows(jobs: list[Job], settings: Iterable[tuple[str, list[str]]]) -> list[dict]:
    """Return the settings, those that differ first."""
    rows = [{"name": name, "cells": cells, "differs": len(set(cells)) > 1} for name, cells in settings if any(cells)]
    return sorted(rows, key=lambda row: not row["differs"])


def _values(jobs: list[Job]) -> list[dict]:
    """Return the last value of each series in each job, with the lowest and the highest."""
    by_job = [{one.name: one for one in series.of_job(job)} for job in jobs]
    names = list(dict.fromkeys(name for values in by_job for name in values))
    return [{"name": name, "cells": [values.get(name) for values in by_job]} for name in names]


def _all_values(jobs: list[Job]) -> Iterator[tuple]:
    yield COLUMNS
    for job in jobs:
        for row in job.metrics.order_by("seq").iterator():
            for name in series.CONTRACT:
                yield job.name, name, row.epoch, getattr(row, name), row.at.isoformat(), row.attempt
        for row in job.values.order_by("pk").iterator():
            yield job.name, row.name, row.step, row.value, row.at.isoformat(), row.attempt
