"""A job in the cell of a notebook: its state, and loss and accuracy as a chart, made of text alone."""

from __future__ import annotations

import html as markup
from importlib import import_module
from typing import Any

from . import shown
from .following import metric_line
from .texts import tr

WIDTH, HEIGHT, EDGE = 480, 140, 8
COLOURS = {"loss": "#d9480f", "accuracy": "#1971c2"}


class Display:
    """Shows a job while it changes: as one cell of IPython where there is one, else as lines on standard error."""

    def __init__(self, job):
        self.job, self.handle, self.told = job, None, 0
        try:
            notebook = import_module("IPython")
            cells = import_module("IPython.display")
        except ImportError:
            return
        if notebook.get_ipython() is not None:
            self.cell = cells.HTML
            self.handle = cells.display(cells.HTML(""), display_id=True)

    def update(self) -> None:
        """Show it as it is now."""
        rows = self.job.metrics()
        if self.handle is not None:
            self.handle.update(self.cell(html(self.job.fields, rows, self.job.url)))
            return
        for row in rows[self.told :]:
            shown.note(metric_line(row))
        self.told = len(rows)


def html(job: dict[str, Any], rows: list[dict[str, Any]], url: str) -> str:
    """Return a job with its reports as HTML."""
    state = (job.get("outcome") or "failed") if job["state"] == "error" else job["state"]
    words = [job["name"], state, f"{job['progress']}%", job.get("reason") or ""]
    head = " · ".join(markup.escape(str(word)) for word in words if word)
    return f'<div><a href="{markup.escape(url)}" target="_blank">{head}</a>{"".join(_lines(rows))}</div>'


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    """Return a chart of each value that was reported."""
    return [_line(name, points) for name in COLOURS if len(points := _points(rows, name)) > 1]


def _points(rows: list[dict[str, Any]], name: str) -> list:
    values = ((row["epoch"], row[name]) for row in rows if isinstance(row.get(name), (int, float)))
    return [(x, y) for x, y in values if y - y == 0]  # neither NaN nor infinite


def _line(name: str, points: list) -> str:
    low_x, high_x = points[0][0], max(points[-1][0], points[0][0] + 1)
    low, high = min(y for _x, y in points), max(y for _x, y in points)
    span = (high - low) or 1.0
    places = " ".join(
        f"{EDGE + (x - low_x) / (high_x - low_x) * (WIDTH - 2 * EDGE):.1f},"
        f"{HEIGHT - EDGE - (y - low) / span * (HEIGHT - 2 * EDGE):.1f}"
        for x, y in points
    )
    label = tr("{name} {last}, from {low} to {high}", name=name, last=_number(points[-1][1]),
               low=_number(low), high=_number(high))  # fmt: skip
    return (
        f'<figure style="margin:4px 0"><figcaption>{markup.escape(label)}</figcaption>'
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" style="border:1px solid #8884">'
        f'<polyline fill="none" stroke="{COLOURS[name]}" stroke-width="2" points="{places}"/></svg></figure>'
    )


def _number(value: float) -> str:
    return f"{value:.4g}"
