"""`dataset`: make datasets of outputs, list and delete them. `push` and `pull` send and fetch files."""

from __future__ import annotations

import argparse
import time
from urllib.parse import quote

from . import automation, objects, shown
from .connection import Rest
from .texts import tr
from .transfer.errors import REFUSED, Failure
from .transfer.progress import size

LOOK_EVERY_S = 0.5


def declare(command) -> None:
    """Add the verbs."""
    datasets = command.group("dataset", tr("make datasets of outputs and buckets, list and delete them"))
    parser = datasets(
        "create",
        create_dataset,
        tr("make a dataset of an output or a bucket, and wait for the copy"),
    )
    parser.add_argument("name", metavar="DATASET", help=tr("letters a to z and dots"))
    parser.add_argument(
        "source",
        metavar="JOB[/PATH]",
        help=tr("output of a job, home/PATH (uploaded) or s3/BUCKET/PATH"),
    )
    parser.add_argument("--external", action="store_true", help=tr("leave the files in the bucket: only list them"))
    parser.add_argument("--title", help=tr("what pages call it"))
    parser.add_argument("--tenant", help=tr("tenant whose resources it uses"))
    parser = datasets("refresh", refresh_dataset, tr("list the bucket of an external dataset again"))
    parser.add_argument("name", metavar="DATASET", help=tr("name of the dataset: letters a to z and dots"))
    automation.add_list(datasets, list_datasets)
    automation.add_removal(datasets, "datasets", "DATASET", tr("delete a dataset"), has_trash=True)


def source_of(given: str) -> str:
    """Return what REST calls a source: `jobs/` may be left out."""
    return given if given.startswith(("home/", "jobs/", "s3/", "s3://")) else f"jobs/{given}"


def create_dataset(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Make a dataset and wait until it is ready. Raises Failure where its files cannot be copied."""
    fields = {"name": options.name, "src": source_of(options.source), "title": options.title, "tenant": options.tenant}
    if options.external:
        fields["external"] = True
    row = rest.send("POST", "datasets", {key: value for key, value in fields.items() if value is not None}).json()
    while row["state"] == "creating":
        time.sleep(LOOK_EVERY_S)
        row = rest.get(f"datasets/{quote(options.name, safe='')}")
    if row["state"] != "ready":
        raise Failure(REFUSED, tr("dataset {name}: {reason}", name=options.name, reason=row["reason"]))
    if row["reason"]:  # what was left out
        say(tr("dataset {name}: {reason}", name=options.name, reason=row["reason"]))
    options.show = lambda row: shown.line(
        tr("{name}: {value}", name=row["name"], value=f"{row['state']}  {size(row['size'])}  {row['src']}")
    )
    return row


def refresh_dataset(rest: Rest, options: argparse.Namespace, say) -> dict:
    """List the bucket of an external dataset again, and wait for it. Raises Failure where it could not be listed."""
    row = refreshed(rest, options.name)
    value = f"{row['name']}@{row['version']}  {size(row['size'])}  {row['src']}"
    options.show = lambda row: shown.line(tr("{name}: {value}", name=row["name"], value=value))
    return row


def refreshed(rest: Rest, name: str) -> dict:
    """Return the external dataset once its bucket has been listed again. Raises Failure where it could not be."""
    place = f"datasets/{quote(name, safe='')}"
    before = rest.send("PUT", f"{place}:refresh", {}).json()
    row = before
    while row["refreshing"]:
        time.sleep(LOOK_EVERY_S)
        row = rest.get(place)
    if row["refreshed"] == before["refreshed"]:
        raise Failure(REFUSED, tr("dataset {name}: {reason}", name=name, reason=row["reason"]))
    return row


def list_datasets(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest datasets. Raises Failure."""
    columns = (
        (tr("NAME"), lambda row: row["name"]),
        (tr("STATE"), lambda row: row["state"]),
        (tr("SIZE"), lambda row: size(row["size"])),
        (tr("AGE"), lambda row: objects.age(row["created"])),
        (tr("SOURCE"), lambda row: row.get("src") or "-"),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("datasets", options.limit)
