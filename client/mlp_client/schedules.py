"""`schedule`: the definition in a file is sent with its script."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from . import automation, shown
from .connection import Rest
from .definitions import Definition
from .texts import tr


def declare(command) -> None:
    """Add the verbs."""
    schedules = command.group("schedule", tr("submit at certain times, or when something happens"))
    automation.add_definition(schedules("create", create_schedule, tr("create the schedule of a file")))
    automation.add_list(schedules, list_schedules)
    parser = schedules("show", show_schedule, tr("print the next times of a schedule and what it has done"))
    automation.add_name(parser, "SCHEDULE")
    automation.add_calls(schedules, "schedules", "SCHEDULE", {
        "pause": tr("submit nothing until it is resumed"),
        "resume": tr("let a paused schedule go on"),
        "run": tr("submit now, whatever else runs"),
    })  # fmt: skip
    automation.add_removal(schedules, "schedules", "SCHEDULE", tr("delete a schedule; what it has submitted goes on"))


def create_schedule(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Create the schedule of a file. Raises Failure."""
    definition = Definition(options.file, options.name or "")
    definition.send(rest, options, say)
    options.show = _print_schedule
    return definition.post(rest, "schedules").json()


def list_schedules(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest schedules. Raises Failure."""
    columns = (
        (tr("NAME"), lambda row: row["name"]),
        (tr("STATE"), lambda row: row["state"]),
        (tr("WHEN"), _when),
        (tr("NEXT"), lambda row: (row["next_times"] or ["-"])[0]),
        (tr("TITLE"), lambda row: row["title"]),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("schedules", options.limit)


def show_schedule(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Return a schedule with what it has done. Raises Failure."""
    path = f"schedules/{quote(options.name, safe='')}"
    options.show = _print_schedule
    return {**rest.get(path), "firings": rest.rows(path + "/firings", 10)}


def _when(row: dict) -> str:
    if row["cron"]:
        return f"{row['cron']} {row['time_zone']}"
    return " ".join(filter(None, (row["event"].get("on", ""), row["event"].get("name", ""))))


def _print_schedule(row: dict) -> None:
    shown.line(tr("{name}: {value}", name=row["name"], value=f"{row['state']}  {_when(row)}"))
    if row["reason"]:
        shown.line(row["reason"])
    for moment in row["next_times"]:
        shown.line(tr("next: {moment}", moment=moment))
    for firing in row.get("firings", ()):
        shown.line("  ".join(filter(None, [firing["planned"], firing["state"], firing["made"], firing["reason"]])))
