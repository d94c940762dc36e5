"""Boards of charts: `{% load charts %}{% charts jobs %}`, or of some metrics only, `{% charts jobs groups %}`.

The board is templates/charts/_board.html, its scripts are below mlp/static/mlp/charts. A page with boards includes
charts/_styles.html in its head, and its script calls `boards()` of charts/index.js.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from django import template
from django.db.models import prefetch_related_objects
from django.http import QueryDict

from jobs.models import Job
from jobs.summaries import colours
from tracking.metrics import usage_series
from tracking.metrics.points import in_order
from tracking.metrics.series import ACCURACY_AND_LOSS, MEASURED, TITLES, accuracy_and_loss, summarised

register = template.Library()
MAX_CHARTS = 200  # of a board
MAX_ALARMS = 4  # as in board.js


@register.inclusion_tag("charts/_board.html", takes_context=True)
def charts(context, jobs: Iterable[Job] | Job, groups: list[list[str]] | None = None, *, compact: bool = False) -> dict:
    """Return a board of these jobs with a chart for each of `groups`, lists of metrics; None: a chart for each metric.

    A compact board has accuracy and loss only, and no controls. Of more than MAX_CHARTS metrics the first have charts,
    and a form finds others: those that have `metrics` of the address in their names.
    """
    request = context.get("request")
    jobs = [jobs] if isinstance(jobs, Job) else list(jobs)
    part = "" if compact or groups is not None or request is None else request.GET.get("metrics", "").replace("\0", "")
    rows = summarised(jobs, part)
    if compact:
        prefetch_related_objects(jobs, accuracy_and_loss())
        last = [(job.pk, metric.name, metric.last) for job in jobs for metric in getattr(job, ACCURACY_AND_LOSS)]
    else:
        # So many rows have the first MAX_CHARTS names of all jobs, and of one more.
        last = list(rows.values_list("job", "name", "last")[: (MAX_CHARTS + 1) * len(jobs)])
    drawn = [*MEASURED] if compact else in_order({name for _job, name, _last in last})
    many = len(drawn) > MAX_CHARTS
    names = [[name] for name in drawn[:MAX_CHARTS]] if groups is None else groups
    several = {job.pk: job.shown_name for job in sorted(jobs, key=lambda job: job.pk)}
    bad = [(pk, name) for pk, name, value in last if math.isnan(value)]
    return {
        **_board(jobs, names, {"find": part, "limit": MAX_CHARTS} if many or part else {}),
        "many": many,
        "part": part,
        "shown": len(names),
        "total": rows.values("name").distinct().order_by().count() if many else len(names),
        "kept": [] if request is None else [pair for pair in _pairs(request.GET) if pair[0] != "metrics"],
        "titles": json.dumps({name: str(title) for name, title in TITLES.items()}),
        "compact": compact,
        "numbers": [row for job in jobs for row in getattr(job, ACCURACY_AND_LOSS)] if compact else [],
        # Their lines are there before the points say since when, so that nothing moves.
        "alarms": [(several[pk], name) for pk in several for other, name in bad if other == pk][:MAX_ALARMS],
        "fixed": compact or groups is not None or many or bool(part),
        "controls": not compact,
        "ended": all(job.has_ended for job in jobs),
    }


@register.inclusion_tag("charts/_board.html")
def panel_chart(panel: dict) -> dict:
    """Return the chart of a panel of a project's board (tracking.runs.panels): its metrics on one chart."""
    jobs = panel["jobs"]
    return {
        **_board(jobs, [panel["metrics"]], is_panel=True),
        "titles": json.dumps({name: str(title) for name, title in TITLES.items()}),
        "fixed": True,
        "panel": panel,
        "axis": panel.get("axis", "step"),
        "ended": all(job.has_ended for job in jobs),
    }


@register.inclusion_tag("charts/_board.html")
def usage_charts(job: Job, titles: dict[str, str]) -> dict:
    """Return a board of a job's resource usage; `titles` are the titles of the charts."""
    names = [[series.name] for series in usage_series.of_job(job)]
    return {**_board([job], names), "titles": json.dumps(titles), "source": "usage", "floor": 0, "ended": job.has_ended}


def _pairs(query: QueryDict) -> list[tuple[str, str]]:
    return [(name, value) for name, values in query.lists() for value in values]


def _board(jobs: list[Job], names: list[list[str]], given: dict | None = None, *, is_panel: bool = False) -> dict:
    """Return what all boards need. The panels of a page show a run in one colour, even if another one has it, too.

    `given`: what else a script is to know of each run.
    """
    drawn = [job.shown_colour for job in jobs] if is_panel else colours.distinct(jobs)
    runs = [
        {
            **(given or {}),
            "id": job.pk,
            "user": job.user.username,
            "job": job.name,
            "label": job.shown_name,
            "colour": colour,
            "started": job.started.timestamp() if job.started else None,
            "live": not job.has_ended,
        }
        for job, colour in zip(jobs, drawn, strict=True)
    ]
    return {"runs": json.dumps(runs), "several": len(jobs) > 1, "groups": [json.dumps(group) for group in names]}
