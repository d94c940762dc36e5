"""A table of runs as CSV and as JSON, streamed line by line: memory does not grow with the number of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from jobs import states
from kernel import spreadsheets

from .columns import Column
from .serializers import RunOut
from .table import Row, Table


def as_csv(table: Table) -> Iterator[str]:
    """Return the lines of a CSV with the table's columns. Raises FilterError before the first one."""
    table.runs, table.columns  # noqa: B018 (evaluated here, so that an error is raised before the response begins)
    return spreadsheets.lines(_cells(table))


def _cells(table: Table) -> Iterator[list]:
    """Yield the heading and the rows. What pages call the run and its project comes after the name of each."""
    name, *others = table.columns
    yield [name.key, "title", *(key for column in others for key in _heads(column))]
    for row in table.all_rows():
        yield [text_of(row, name), row.job.shown_name, *(text for column in others for text in _texts(row, column))]


def _heads(column: Column) -> list[str]:
    return ["project", "project_title"] if column.key == "project" else [column.key]


def _texts(row: Row, column: Column) -> list:
    text = text_of(row, column)
    return [text, row.job.project.shown_name if row.job.project else ""] if column.key == "project" else [text]


def as_json(table: Table) -> Iterator[str]:
    """Return the parts of a JSON array with everything that REST says of the runs. Raises FilterError before."""
    table.runs  # noqa: B018
    return _json_parts(table)


def _json_parts(table: Table) -> Iterator[str]:
    yield "["
    for number, row in enumerate(table.all_rows(everything=True)):
        row.job.row = row
        yield (",\n" if number else "\n") + json.dumps(RunOut(row.job).data, ensure_ascii=False, default=str)
    yield "\n]\n"


def text_of(row: Row, column: Column):
    """Return the value of a cell, as text or number."""
    if column.kind != "fixed":
        return row.value(column)
    job = row.job
    match column.key:
        case "state":
            return states.word(job)
        case "duration":
            return job.ran_for
        case "waiting":
            return row.waited
        case "script":
            return job.entry
        case "dataset":
            return ", ".join(job.datasets)
        case "project":
            return job.project.name if job.project else ""
        case "tags":
            return ", ".join(f"{name}={value}" if value else name for name, value in job.tags.items())
        case "created" | "started" | "ended":
            at = getattr(job, column.key)
            return at.isoformat() if at else ""
    return getattr(job, column.key)
