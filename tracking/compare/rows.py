"""The table of a comparison: a row for each setting, argument and metric, a cell for each run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from django.db.models import Q
from django.utils.formats import localize
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.models import Job, RunMetric, RunParam
from kernel.units import short
from tracking.metrics import series
from tracking.runs import goals

MAX_ROWS = 400  # of one kind
MAX_NAMES = 2000  # metrics that are looked at


@dataclass
class Cell:
    """One run's value: its text, whether it is the best of its row, and its tooltip."""

    text: str = ""
    best: bool = False
    title: str = ""


@dataclass
class Row:
    """One row of the table; `differs` if not all runs have the same value."""

    name: str
    cells: list[Cell]
    differs: bool = False


@dataclass
class Table:
    """The rows of some runs, and the numbers that the plots need."""

    settings: list[Row] = field(default_factory=list)
    arguments: list[Row] = field(default_factory=list)
    metrics: list[Row] = field(default_factory=list)
    cut: bool = False  # there are more rows than are shown


def table_of(jobs: list[Job], params: dict, summaries: dict, only_differences: bool) -> Table:
    """Return the rows of these runs. `params` and `summaries` are what `params_of` and `summaries_of` return."""
    table = Table(
        settings=[_row(name, cells) for name, cells in _settings(jobs) if any(cells)],
        arguments=[_row(name, [params[job.pk].get(name, "") for job in jobs]) for name in _names(jobs, params)],
        metrics=list(_metrics(jobs, summaries)),
        cut=len(_names(jobs, summaries)) >= MAX_NAMES,
    )
    for kind in ("settings", "arguments", "metrics"):
        rows = [row for row in getattr(table, kind) if row.differs or not only_differences]
        table.cut = table.cut or len(rows) > MAX_ROWS
        setattr(table, kind, rows[:MAX_ROWS])
    return table


def params_of(jobs: list[Job]) -> dict[int, dict[str, str]]:
    """Return the arguments and parameters of each run by name."""
    params: dict[int, dict[str, str]] = defaultdict(dict)
    for job_id, name, text in RunParam.objects.filter(job__in=jobs).values_list("job_id", "name", "text"):
        params[job_id][name] = text
    return params


def summaries_of(jobs: list[Job]) -> dict[int, dict[str, RunMetric]]:
    """Return the summary of each metric of each run by name; of very many metrics the first by name."""
    summaries: dict[int, dict[str, RunMetric]] = defaultdict(dict)
    rows = series.summarised(jobs)
    if sum(job.values_kept for job in jobs) > MAX_NAMES:  # else there are not so many
        last = rows.values_list("name", flat=True).order_by("name").distinct()[MAX_NAMES : MAX_NAMES + 1]
        rows = rows.filter(Q(name__in=series.MEASURED) | Q(name__lt=last[0])) if last else rows
    for summary in rows:
        summaries[summary.job_id][summary.name] = summary
    return summaries


def best_column(jobs: list[Job], name: str) -> str:
    """Return "min" or "max", whichever is better: by the first project that defines it, else by the metric's name."""
    said = [job.project.goals[name] for job in jobs if job.project and name in job.project.goals]
    return goals.best_of(name, {name: said[0]} if said else {})


def _names(jobs: list[Job], by_job: dict[int, dict]) -> list[str]:
    """Return the names that any of the runs has, alphabetically; accuracy and loss first."""
    return sorted(
        {name for job in jobs for name in by_job[job.pk]}, key=lambda name: (name not in series.MEASURED, name)
    )


def _settings(jobs: list[Job]) -> Iterator[tuple[str, list[str]]]:
    yield _("Script"), [job.entry for job in jobs]
    yield _("Datasets"), [", ".join(job.datasets) for job in jobs]
    yield _("Runtime"), [job.get_runtime_display() for job in jobs]
    yield _("Image"), [job.image for job in jobs]
    yield _("CPU"), [f"{job.cpu:g}" for job in jobs]
    yield _("GPU"), [str(job.gpu) for job in jobs]
    yield _("GPU type"), [job.gpu_type for job in jobs]
    yield _("Memory (MiB)"), [str(job.ram) for job in jobs]
    yield _("Workers"), [str(job.workers) for job in jobs]
    yield _("Tags"), [", ".join(f"{key}={value}" if value else key for key, value in job.tags.items()) for job in jobs]
    variables = [job.page_env for job in jobs]
    for name in sorted({name for each in variables for name in each}):
        yield name, [str(each.get(name, "")) for each in variables]


def _row(name: str, texts: list[str]) -> Row:
    return Row(name, [Cell(text) for text in texts], len(set(texts)) > 1)


def _metrics(jobs: list[Job], summaries: dict[int, dict[str, RunMetric]]) -> Iterator[Row]:
    """Yield the last values and then the best ones of each metric; in each row the winners are marked."""
    for name in _names(jobs, summaries):
        of_jobs = [summaries[job.pk].get(name) for job in jobs]
        better = best_column(jobs, name)
        choose = min if better == "min" else max
        title = str(series.TITLES.get(name, name))
        yield _values(title, of_jobs, "last", choose)
        best = _("%(name)s, lowest") if better == "min" else _("%(name)s, highest")
        yield _values(best % {"name": title}, of_jobs, better, choose)


def _values(name: str, of_jobs: list[RunMetric | None], column: str, choose) -> Row:
    values = [None if job is None else getattr(job, column) for job in of_jobs]
    numbers = [value for value in values if value is not None and not math.isnan(value)]
    winner = choose(numbers) if len(set(numbers)) > 1 else None
    cells = [
        Cell() if metric is None else Cell(short(value), value == winner, _title(metric, value))
        for metric, value in zip(of_jobs, values, strict=True)
    ]
    return Row(name, cells, len({cell.text for cell in cells}) > 1)


def _title(metric: RunMetric, value: float) -> str:
    """Return the whole number, and the bounds of the metric."""
    bounds = {"low": short(metric.min), "high": short(metric.max), "count": metric.count}
    values = ngettext("%(low)s to %(high)s, %(count)s value", "%(low)s to %(high)s, %(count)s values", metric.count)
    return f"{localize(value)} · {values % bounds}"


def plotted(jobs: list[Job], params: dict, summaries: dict) -> dict:
    """Return the data of the plots: the runs, and the axes, each with a value for each run.

    The values of an argument are numbers if they are numbers for every run that has it, else texts.
    """
    return {
        "runs": [job.shown_name for job in jobs],
        "axes": [*_argument_axes(jobs, params), *_metric_axes(jobs, summaries)],
    }


def _argument_axes(jobs: list[Job], params: dict) -> Iterable[dict]:
    for name in _names(jobs, params)[:MAX_ROWS]:
        texts = [params[job.pk].get(name) for job in jobs]
        values = [_number(text) for text in texts]
        numeric = all((value is None) == (text is None) for value, text in zip(values, texts, strict=True))
        same = len(set(texts)) < 2
        yield {"kind": "argument", "name": name, "values": values if numeric else texts, "same": same}


def _metric_axes(jobs: list[Job], summaries: dict) -> Iterable[dict]:
    for name in _names(jobs, summaries)[:MAX_ROWS]:
        better = best_column(jobs, name)
        summaries_of_name = [summaries[job.pk].get(name) for job in jobs]
        values = [None if summary is None else getattr(summary, better) for summary in summaries_of_name]
        finite = [value if value is not None and math.isfinite(value) else None for value in values]
        yield {"kind": "metric", "name": name, "values": finite, "better": better, "same": False}


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None
