"""Several jobs side by side, as a page and as CSV. Part of the jobs' pages."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.http import Http404, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from accounts.sharing import access
from accounts.sharing.access import shareable
from jobs.models import Job
from jobs.summaries import colours
from kernel import spreadsheets
from kernel.pages import why_not
from tracking.metrics import series

from . import rows, saved
from .saved import MAX_JOBS

DRAWN = 10  # in the charts over steps, unless all are asked for: more have the same colours
OFFERED = 50
LISTED = 200  # saved comparisons
COLUMNS = ("job", "series", "step", "value", "time", "attempt")


@shareable
@require_GET
def compare(request):
    """Show the jobs of `?job=a&job=b`: charts, plots of arguments against metrics, and a table. With
    `?only=differences` it has only the rows where the jobs differ, with `?draw=all` the charts show all of them. Offers
    other jobs to add.
    """
    chosen = selected(request)
    context = {
        **context_of(request, chosen, request.GET.get("only") == "differences"),
        "without_only": query_without(request, "only"),
        "runs_query": request.GET.urlencode(),
        "others": _others(request, chosen),
        "full": "" if request.page_owner else why_not(lambda: saved.require_room(request.user)),
        "comparisons": saved.rows_of(request.user)[:LISTED] if not request.page_owner else [],
    }
    return render(request, "tracking/compare.html", context)


def context_of(request, chosen: list[Job], only_differences: bool) -> dict:
    """Return what the page needs to show these runs."""
    params, summaries = rows.params_of(chosen), rows.summaries_of(chosen)
    of_runs = colours.distinct(chosen)
    plots = rows.plotted(chosen, params, summaries)
    compared = chosen if request.GET.get("draw") == "all" else chosen[:DRAWN]
    return {
        "jobs": list(zip(of_runs, chosen, strict=True)),
        "table": rows.table_of(chosen, params, summaries, only_differences),
        "reported": any(summaries.values()),
        "plotted": json.dumps({"colours": of_runs, **plots}),
        "plottable": bool(plots["axes"]),
        "only_differences": only_differences,
        "compared": compared,
        "left_out": len(compared) < len(chosen),
        "most": MAX_JOBS,
        "drawn": DRAWN,
        "active": any(not job.has_ended for job in chosen),
    }


@shareable
@require_GET
def compare_csv(request):
    """Return every reported number of the chosen jobs, one a line."""
    chosen = selected(request)
    if not chosen:
        raise Http404
    name = "-".join(job.name for job in chosen)[:80]
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"', "X-Content-Type-Options": "nosniff"}
    return StreamingHttpResponse(
        spreadsheets.lines(_all_values(chosen)), content_type="text/csv; charset=utf-8", headers=headers
    )


def _others(request, chosen: list[Job]) -> list[Job]:
    """Return the visitor's own jobs that can be added."""
    if request.reading is not None:
        return []
    mine = Job.objects.filter(user=request.user, trashed=None).exclude(pk__in=[job.pk for job in chosen])
    return list(mine.order_by("-pk")[:OFFERED])


@shareable
@require_GET
def compare_code(request):
    """Redirect to the difference of the code, arguments and packages of `?job=a&job=b`."""
    chosen = selected(request)
    if len(chosen) != 2:
        raise Http404
    query = QueryDict(mutable=True)
    query["with"] = chosen[1].name
    return redirect(f"{access.address(chosen[0], 'job_code_diff')}?{query.urlencode()}")


def selected(request) -> list[Job]:
    """Return the named jobs of the user in the address that the visitor may read, in its order, each once."""
    names = list(dict.fromkeys(name for name in request.GET.getlist("job") if "\x00" not in name))[:MAX_JOBS]
    owner = request.page_owner or request.user.username
    chosen = in_order(request, owner, names)
    request.reading = next((job.reading for job in chosen if job.reading), None)
    if owner != request.user.username and not chosen:
        raise Http404
    return chosen


def in_order(request, owner: str, names: list[str]) -> list[Job]:
    """Return those of the owner's jobs that the visitor may read, in the order of the names."""
    rows = Job.objects.filter(user__username=owner, name__in=names).select_related("user", "project")
    jobs = {job.name: job for job in access.readable(request, rows)}
    return [jobs[name] for name in names if name in jobs]


def query_without(request, key: str) -> str:
    query = request.GET.copy()
    query.pop(key, None)
    return query.urlencode()


def _all_values(jobs: list[Job]) -> Iterator[tuple]:
    yield COLUMNS
    for job in jobs:
        for row in job.metrics.order_by("seq").iterator():
            for name in series.MEASURED:
                if (value := getattr(row, name)) is not None:
                    yield job.name, name, row.epoch, value, row.at.isoformat(), row.attempt
        for row in job.values.order_by("pk").iterator():
            yield job.name, row.name, row.step, row.value, row.at.isoformat(), row.attempt
