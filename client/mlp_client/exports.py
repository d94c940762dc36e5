"""`export`: send datasets, models and outputs of jobs to a bucket."""

from __future__ import annotations

import argparse
import time

from . import automation, objects, shown
from .connection import Rest
from .texts import tr
from .transfer.errors import REFUSED, Failure
from .transfer.progress import size

LOOK_EVERY_S = 0.5


def declare(command) -> None:
    """Add the verbs."""
    exports = command.group("export", tr("send datasets, models and outputs to a bucket"))
    parser = exports("create", create_export, tr("send files to a bucket, and wait until they are there"))
    parser.add_argument(
        "source", metavar="SOURCE", help=tr("datasets/NAME[@VERSION], models/NAME or the output of a job: JOB[/PATH]")
    )
    parser.add_argument("target", metavar="s3/BUCKET[/PATH]", help=tr("folder of the bucket to send to"))
    parser.add_argument("-d", "--detach", action="store_true", help=tr("do not wait until it has ended"))
    automation.add_list(exports, list_exports)
    parser = exports("cancel", cancel_export, tr("cancel an export; what was sent stays in the bucket"))
    parser.add_argument("number", type=int, metavar="NUMBER", help=tr("number of the export, which list shows"))


def source_of(given: str) -> str:
    """Return what REST calls a source: `jobs/` may be left out."""
    return given if given.startswith(("datasets/", "jobs/", "models/")) else f"jobs/{given}"


def create_export(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Export, and wait until it has ended. Raises Failure where it has failed or was cancelled."""
    fields = {"src": source_of(options.source), "target": options.target}
    row = rest.send("POST", "exports", fields).json()
    while row["state"] in ("queued", "running") and not options.detach:
        time.sleep(LOOK_EVERY_S)
        row = rest.get(f"exports/{row['number']}")
    if row["state"] == "error":
        raise Failure(REFUSED, tr("export {name}: {reason}", name=row["number"], reason=row["reason"]))
    if row["reason"]:  # what was left out, or what it waits for
        say(tr("export {name}: {reason}", name=row["number"], reason=row["reason"]))
    value = f"{_state(row)}  {row['src']} > {row['target']}"
    if row["files"] is not None:
        value += "  " + tr("{sent} of {files} files sent", sent=row["sent"], files=row["files"])
    options.show = lambda row: shown.line(tr("{name}: {value}", name=row["number"], value=value))
    return row


def list_exports(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest exports. Raises Failure."""
    columns = (
        (tr("NUMBER"), lambda row: str(row["number"])),
        (tr("STATE"), _state),
        (tr("SIZE"), lambda row: "-" if row["size"] is None else size(row["size"])),
        (tr("AGE"), lambda row: objects.age(row["created"])),
        (tr("SOURCE"), lambda row: row["src"]),
        (tr("TARGET"), lambda row: row["target"]),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("exports", options.limit)


def cancel_export(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Cancel an export. Raises Failure."""
    row = rest.send("PUT", f"exports/{options.number}:cancel", {}).json()
    options.show = lambda row: shown.line(tr("{name}: {value}", name=row["number"], value=_state(row)))
    return row


def _state(row: dict) -> str:
    if row["state"] == "error":
        return row["outcome"]
    return f"{row['progress']} %" if row["state"] == "running" else row["state"]
