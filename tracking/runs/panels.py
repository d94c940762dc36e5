"""The panels of a project's board with their current values.

Charts and plots draw the runs of the table below the board: its filter, its order, and without the hidden ones.
"""

from __future__ import annotations

import hashlib
import json
import math

from django.db.models import Exists, F, Max, Min, OuterRef, Q, QuerySet
from django.http import QueryDict
from django.utils.translation import gettext as _

from jobs.models import Job, Project, RunMetric, RunParam, View
from kernel.messages import translate
from tracking.metrics.series import MEASURED

from . import board, columns, filters, goals, names
from .changes import LIVE
from .order import Pages
from .table import LOOKED_AT, Table

EMPTY = {"title": "", "metric": "", "statistic": "best", "text": "", "problem": "", "wide": False, "job": None}
RUNS = 10  # of a chart or a list, unless the panel says how many
SUGGESTED = 6  # charts
DOTS = 50  # of a scatter plot or of parallel coordinates


def filled(project: Project, table: Table) -> list[dict]:
    """Return the panels, each with what its kind shows (`value`, `rows`, `jobs`, `plot`), or with its `problem`.

    `table` is the table of runs below the board.
    """
    rows = project.board or suggested(project)
    return [{**EMPTY, **panel, **_size(panel), **_filled(panel, project, table)} for panel in rows]


def suggested(project: Project) -> list[dict]:
    """Return the charts that a project without a board shows: the metrics that most of its newest runs have."""
    newest = Job.kept.filter(project=project).order_by("-pk").values("pk")[:LOOKED_AT]
    names_found = names.frequent(newest, SUGGESTED)[1]
    first = [name for name in MEASURED if name in names_found]
    return [
        {"kind": "chart", "metrics": [name]} for name in (*first, *(name for name in names_found if name not in first))
    ]


def _size(panel: dict) -> dict:
    return {"span": board.width(panel), "rows_high": board.height(panel), "sized": panel["kind"] in board.DRAWN}


def _filled(panel: dict, project: Project, table: Table) -> dict:
    if panel["kind"] == "text":
        return {}
    try:
        runs = _of_table(panel, Job.kept.filter(project=project), table)
        tree = filters.parse(panel.get("filter", ""))
        scope = filters.Scope(table.user, project.goals, runs=Job.kept.filter(project=project))
        runs = runs.filter(filters.condition(tree, scope))
        return _CONTENTS[panel["kind"]](panel, runs, project, table)
    except filters.FilterError as problem:
        return {"problem": translate(problem.msg)}
    except View.DoesNotExist:
        return {"problem": _("There is no saved view %(name)s.") % {"name": panel["view"]}}


def _of_table(panel: dict, runs: QuerySet, table: Table) -> QuerySet:
    """Return the runs that a chart or plot may draw; other panels are about all runs."""
    if panel["kind"] not in board.DRAWN:
        return runs
    runs = runs.filter(hidden=False)
    if "view" in panel or table.trash or not (table.filter or table.state or table.name):
        return runs
    try:
        return runs.filter(pk__in=table.runs.order_by().values("pk"))
    except filters.FilterError:  # the table says so
        return runs


# --- numbers and lists -----------------------------------------------------------------------------------------------
def _count(_panel: dict, runs: QuerySet, _project: Project, _table: Table) -> dict:
    return {"value": runs.count()}


def _series(panel: dict, runs: QuerySet, project: Project, _table: Table) -> dict:
    rows = _summaries(panel["metric"], runs, project)
    best = goals.best_of(panel["metric"], project.goals)
    latest = rows.order_by("-job_id").select_related("job", "job__user")[: panel.get("runs", RUNS)]
    return {"rows": [{"job": row.job, "last": row.last, "best": getattr(row, best)} for row in latest]}


def _number(panel: dict, runs: QuerySet, project: Project, _table: Table) -> dict:
    rows = _summaries(panel["metric"], runs, project)
    best = goals.best_of(panel["metric"], project.goals)
    statistic = panel.get("statistic", "best")
    if statistic == "last":
        row = rows.order_by("-job_id").select_related("job", "job__user").first()
        return {"value": row and row.last, "job": row and row.job}
    field = best if statistic == "best" else statistic
    top = rows.aggregate(value=(Min if field == "min" else Max)(field, filter=~_nan(field)))["value"]
    summary = rows.filter(**{field: top}).select_related("job", "job__user").order_by(F("job_id")).first()
    return {"value": top, "job": summary and summary.job if top is not None else None}


def _summaries(name: str, runs: QuerySet, project: Project) -> QuerySet:
    return RunMetric.objects.filter(user=project.user, name=name, job__in=runs)


def _nan(field: str) -> Q:
    return Q(**{field: float("nan")})


# --- charts and plots ------------------------------------------------------------------------------------------------
def _chart(panel: dict, runs: QuerySet, project: Project, table: Table) -> dict:
    jobs = _chosen(panel, runs, project, panel["metrics"], RUNS, table)
    drawn = {name: panel.get(name) for name in ("metrics", "axis", "log", "smooth")}
    return {"jobs": jobs, "key": _key(drawn, jobs), "title": panel.get("title") or ", ".join(panel["metrics"])}


def _scatter(panel: dict, runs: QuerySet, project: Project, table: Table) -> dict:
    return _plot(panel, runs, project, [panel["x"], panel["y"]], table)


def _parallel(panel: dict, runs: QuerySet, project: Project, table: Table) -> dict:
    return _plot(panel, runs, project, panel["axes"], table)


def _plot(panel: dict, runs: QuerySet, project: Project, keys: list[str], table: Table) -> dict:
    """Return the values of the runs in these columns, the last metric among them being the one that is optimised."""
    chosen = [shown for key in keys if (shown := columns.column(key, project.goals))]
    metrics = [column.name for column in reversed(chosen) if column.is_metric]
    jobs = _chosen(panel, runs, project, metrics, DOTS, table)
    axes = [_axis(column, jobs, project) for column in chosen]
    drawn = {"kind": panel["kind"], "axes": axes, "logX": panel.get("log_x", False), "logY": panel.get("log_y", False)}
    runs_ = {"runs": [job.shown_name for job in jobs], "colours": [job.shown_colour for job in jobs]}
    title = panel.get("title") or " × ".join(axis["name"] for axis in axes)
    return {"plot": json.dumps({**runs_, **drawn}), "jobs": jobs, "key": _key(drawn, jobs), "title": title}


def _axis(column: columns.Column, jobs: list[Job], project: Project) -> dict:
    """Return an axis with the value of each run: a number, a text, or None. Texts only where not all are numbers."""
    if column.is_metric:
        rows = RunMetric.objects.filter(job__in=jobs, name=column.name)
        numbers = {row.job_id: getattr(row, column.field) for row in rows}
        values = [
            value if (value := numbers.get(job.pk)) is not None and math.isfinite(value) else None for job in jobs
        ]
        better = goals.best_of(column.name, project.goals)
        name = f"{column.name} ({column.hint})" if column.hint else column.name
        return {"kind": "metric", "name": name, "values": values, "better": better}
    params = {row.job_id: row for row in RunParam.objects.filter(job__in=jobs, name=column.name)}
    numeric = all(row.number is not None and math.isfinite(row.number) for row in params.values())
    values = [(row.number if numeric else row.text[:100]) if (row := params.get(job.pk)) else None for job in jobs]
    return {"kind": "argument", "name": column.name, "values": values}


def _chosen(panel: dict, runs: QuerySet, project: Project, metrics: list[str], usual: int, table: Table) -> list[Job]:
    """Return the runs of a panel: the first of the table, by default the newest, that have one of its metrics or may
    still report it, the best by the first of them, or the first runs of a saved view.
    """
    most = panel.get("runs", usual)
    if panel.get("view"):
        view = View.objects.get(user=project.user, project=project, name=panel["view"])
        runs = runs.filter(pk__in=(shown := _of_view(view, project, most)))
        place = {pk: number for number, pk in enumerate(shown)}
        return sorted(runs.select_related("user"), key=lambda job: place[job.pk])
    if panel.get("order") == "best" and metrics:
        field = goals.best_of(metrics[0], project.goals)
        rows = _summaries(metrics[0], runs, project).exclude(_nan(field))
        keys = list(
            rows.order_by(("" if field == "min" else "-") + field, "-job_id").values_list("job", flat=True)[:most]
        )
        jobs = Job.objects.select_related("user").in_bulk(keys)
        return [jobs[pk] for pk in keys if pk in jobs]
    if metrics:
        reported = RunMetric.objects.filter(job=OuterRef("pk"), name__in=metrics)
        runs = runs.filter(Exists(reported) | Q(state__in=LIVE))
    if table.order.key == "-created" or panel.get("order"):
        return list(runs.order_by("-pk").select_related("user")[:most])
    keys = [place.pk for place in Pages(runs, table.order, table.user).after(None, most)]
    jobs = Job.objects.select_related("user").in_bulk(keys)
    return [jobs[pk] for pk in keys if pk in jobs]


def _of_view(view: View, project: Project, most: int) -> list[int]:
    return [row.job.pk for row in Table(project.user, QueryDict(view.query), project).page(most).rows]


def _key(drawn: dict, jobs: list[Job]) -> str:
    """Return an id for the element that draws: it is another one when another thing is drawn."""
    text = json.dumps([drawn, [(job.pk, job.shown_colour) for job in jobs]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_CONTENTS = {
    "chart": _chart, "scatter": _scatter, "parallel": _parallel, "number": _number, "series": _series, "count": _count,
}  # fmt: skip
