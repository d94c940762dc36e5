"""The rows of a table of runs: `{% load run_cells %}{% cells row table.columns own drawn %}`.

A page has a thousand cells. Drawn by functions they take a fifth of the time that a template takes for them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from django import template
from django.template.defaultfilters import truncatechars
from django.templatetags.static import static
from django.urls import reverse
from django.utils.formats import date_format, localize
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from accounts.sharing import access
from jobs.models import Job
from kernel.outcomes import Outcome
from kernel.units import short
from tracking.runs.columns import Column
from tracking.runs.exports import text_of
from tracking.runs.table import Row

from .pages import brief, duration, first_line, measured, say, ticking
from .runs import tags_text

register = template.Library()
LONGEST, LONGEST_REASON = 120, 90
EMPTY = mark_safe("<td></td>")


class Cell(NamedTuple):
    """One cell. `own`: the run is the visitor's. `drawn`: charts above the table draw its runs.

    `main` is the first metric of the table's columns.
    """

    row: Row
    column: Column
    own: bool
    drawn: bool
    main: Column | None

    @property
    def job(self) -> Job:
        return self.row.job

    @property
    def value(self):
        return text_of(self.row, self.column)


@register.simple_tag
def cells(row: Row, columns: list[Column], own: bool, drawn: bool) -> SafeString:
    """Return the cells of a run, with the box that selects it where it is the visitor's own."""
    drawn_cells = [_tick(row.job)] if own else []
    main = next((column for column in columns if column.is_metric), None)
    drawn_cells += [_drawer(column)(Cell(row, column, own, drawn, main)) for column in columns]
    return mark_safe("".join(drawn_cells))


def _drawer(column: Column) -> Callable[[Cell], SafeString]:
    if column.is_metric:
        return _metric
    return DRAWN.get(column.key) or (_number if column.is_number else _text)


def _tick(job: Job) -> SafeString:
    return format_html(
        '<td class="tick"><input type="checkbox" name="job" value="{0}" id="pick-{1}" data-keep aria-label="{2}"></td>',
        job.name, job.pk, _("Select %(name)s") % {"name": job.name},
    )  # fmt: skip


def _name(cell: Cell) -> SafeString:
    job = cell.job
    star = mark = ""
    if job.favourite:
        star = format_html('<span class="star" title="{}">★</span>', _("Favourite"))
    if job.is_client:
        star = format_html('{}<span class="tag" title="{}">MLflow</span>', star, _("Reported by an MLflow client"))
    if cell.own:
        mark = format_html('<span id="mark-job-{}" data-mark="{}" data-keep></span>', job.pk, job.name)
    return format_html(
        '<th scope="row" class="name">{}<a href="{}">{}</a>{}{}{}</th>',
        _line(cell), access.address(job, own=cell.own), job.shown_name, star, mark, _below_name(cell),
    )  # fmt: skip


def _below_name(cell: Cell) -> SafeString:
    """Return the progress and the main metric, which a phone has below the name: their columns are out of sight."""
    parts = [] if _has_no_progress(cell.job) else [f"{cell.job.progress} %"]
    value = None if cell.main is None else text_of(cell.row, cell.main)
    if value is not None:
        parts.append(" ".join(filter(None, (cell.main.title, cell.main.hint, short(value)))))
    return format_html('<span class="hint below-name">{}</span>', " · ".join(parts)) if parts else SafeString("")


def _line(cell: Cell) -> SafeString:
    """Return the colour of a run's lines in charts, and the button that hides them (mlp/static/mlp/runs/lines.js)."""
    job = cell.job
    if not cell.drawn:
        return SafeString("")
    if not cell.own:
        return format_html('<span class="swatch c{}"></span>', job.shown_colour)
    return format_html(
        '<button type="button" class="quiet swatch c{0}" data-colour="{0}" data-address="{1}" title="{2}" aria-haspopup'
        '="menu" aria-label="{3}"></button><button type="button" class="quiet eye" data-eye aria-pressed="{4}" '
        'data-address="{1}" title="{5}" aria-label="{6}"><svg class="icon" aria-hidden="true"><use '
        'href="{7}#{8}"/></svg></button>',
        job.shown_colour, reverse("job_edit", args=[job.name]), _("Colour in charts"),
        _("Colour of %(name)s in charts") % {"name": job.name}, "false" if job.hidden else "true",
        _("Show in charts"), _("Show %(name)s in charts") % {"name": job.name}, static("mlp/icons.svg"),
        "eye-off" if job.hidden else "eye",
    )  # fmt: skip


def _state(cell: Cell) -> SafeString:
    job = cell.job
    return format_html(
        '<td><span class="state state-{}" data-state>{}</span></td>', job.shown_state, job.shown_state_word
    )


def _progress(cell: Cell) -> SafeString:
    job = cell.job
    if _has_no_progress(job):
        return format_html("<td>{}</td>", _hint(job))
    return format_html(
        '<td><div class="amount state-{0}"><progress max="100" value="{1}" aria-hidden="true"></progress>'
        "<span>{1} %</span></div>{2}</td>",
        job.shown_state, job.progress, _hint(job),
    )  # fmt: skip


def _has_no_progress(job: Job) -> bool:
    """Return whether its progress says nothing: no client reports it, and a pruned run was not to end."""
    return job.is_client or job.outcome == Outcome.PRUNED


def _hint(job: Job) -> SafeString:
    """Return what is said below the progress: the time left, why it waits, why it failed."""
    kind, left = "hint", job.left_for
    if left:
        text = ticking(_("about %(time)s left") % {"time": "{}"}, left, -1)
    elif getattr(job, "place", None):
        text = say(job.place)
    elif job.failure:
        kind, text = "hint bad", job.diagnosis.shown_title
    elif job.state == "error" and job.reason:
        text = truncatechars(brief(say(job.reason)), LONGEST_REASON)
        kind = "hint bad" if job.shown_state == "error" else kind
    else:
        return SafeString("")
    return format_html('<span class="{}">{}</span>', kind, text)


def _time(at: datetime | None) -> SafeString:
    if at is None:
        return EMPTY
    local = localtime(at)
    return format_html(
        '<td><time datetime="{}" data-time="near">{} UTC</time></td>',
        local.isoformat(), date_format(local, "DATETIME_FORMAT"),
    )  # fmt: skip


def _duration(cell: Cell) -> SafeString:
    return format_html('<td class="number">{}</td>', duration(cell.value))


def _tags(cell: Cell) -> SafeString:
    words = ((f"{name}={text}" if text else name,) * 2 for name, text in cell.job.tags.items())
    shown = format_html_join("", '<span class="tag" title="{}">{}</span>', words)
    if not cell.own:
        return format_html('<td class="tags">{}</td>', shown)
    return _editable(cell, "tags", tags_text(cell.job.tags), shown, _("Edit the tags of %(name)s"))


def _notes(cell: Cell) -> SafeString:
    if not cell.own:
        return _text(cell)
    notes = cell.job.notes
    return _editable(cell, "notes", notes, truncatechars(first_line(notes), LONGEST), _("Edit the notes of %(name)s"))


def _editable(cell: Cell, field: str, text: str, shown: str, label: str) -> SafeString:
    """Return a cell that mlp/static/mlp/runs/editing.js lets the owner edit in its place."""
    return format_html(
        '<td class="{0} edits" data-edit="{0}" data-value="{1}" data-address="{2}"><span class="clip">{3}</span>'
        '<button type="button" class="quiet small" title="{4}" aria-label="{4}">✎</button></td>',
        field, text, reverse("job_edit", args=[cell.job.name]), shown, label % {"name": cell.job.name},
    )  # fmt: skip


def _script(cell: Cell) -> SafeString:
    return format_html('<td class="clip" title="{0}"><code>{0}</code></td>', cell.job.entry)


def _project(cell: Cell) -> SafeString:
    project = cell.job.project
    if project is None:
        return EMPTY
    address = access.address(project, own=cell.own)
    return format_html('<td class="clip"><a href="{}">{}</a></td>', address, project.shown_name)


def _reason(cell: Cell) -> SafeString:
    words = say(cell.job.reason)
    return format_html('<td class="clip" title="{}">{}</td>', words, truncatechars(words, LONGEST_REASON))


def _metric(cell: Cell) -> SafeString:
    value = cell.value
    return format_html('<td class="number">{}</td>', "" if value is None else measured(value))


def _number(cell: Cell) -> SafeString:
    value = cell.value
    return format_html('<td class="number">{}</td>', "" if value is None else localize(value))


def _text(cell: Cell) -> SafeString:
    value = cell.value
    words = "" if value is None else str(value)
    return format_html('<td class="clip" title="{}">{}</td>', words, truncatechars(words, LONGEST))


DRAWN = {
    "name": _name, "state": _state, "progress": _progress, "duration": _duration, "waiting": _duration, "tags": _tags,
    "notes": _notes,
    "script": _script, "project": _project, "reason": _reason,
    "created": lambda cell: _time(cell.job.created), "started": lambda cell: _time(cell.job.started),
    "ended": lambda cell: _time(cell.job.ended),
}  # fmt: skip
