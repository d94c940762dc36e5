"""`workspace`: JupyterLab beside the user's data."""

from __future__ import annotations

import argparse
import time
import webbrowser
from urllib.parse import quote

from . import automation, guests, objects, running, shown
from .connection import Rest
from .texts import tr
from .transfer.errors import REFUSED, Failure
from .transfer.progress import size

LOOK_EVERY_S = 0.5


def declare(command) -> None:
    """Add the verbs."""
    group = command.group("workspace", tr("JupyterLab beside your data"))
    parser = automation.add_name(group("create", create, tr("create a workspace, and wait until it runs")), "NAME")
    parser.add_argument("--title", help=tr("what pages call it"))
    parser.add_argument("--gpu", type=int, metavar="N", help=tr("number of GPUs"))
    parser.add_argument("--gpu-type", metavar="TYPE", help=tr("type of its GPUs, such as a100"))
    parser.add_argument("--cpu", type=float, metavar="N", help=tr("number of CPUs"))
    parser.add_argument("--ram", type=running.memory, metavar="SIZE", help=tr("memory: 512, 512MiB or 4GiB"))
    parser.add_argument("--tenant", help=tr("tenant whose resources it uses"))
    words = tr("named environment, in place of packages")
    parser.add_argument("--environment", metavar="NAME[@N]", help=words)
    words = tr("dataset to read; may be repeated")
    parser.add_argument("--dataset", action="append", dest="datasets", metavar="DATASET", help=words)
    parser.add_argument("--job", metavar="JOB", help=tr("job whose code, arguments, inputs and output it opens"))
    parser.add_argument("--model", metavar="MODEL", help=tr("model whose files it shows"))
    parser.add_argument("--idle-minutes", type=int, metavar="N", help=tr("stop it when it has been idle for so long"))
    parser.add_argument("--hours", type=int, metavar="N", help=tr("stop it after so many hours"))
    parser.add_argument("-d", "--detach", action="store_true", help=tr("do not wait"))
    automation.add_list(group, list_workspaces)
    automation.add_name(group("open", open_page, tr("open a workspace in the browser")), "WORKSPACE")
    automation.add_calls(group, "workspaces", "WORKSPACE", {
        "stop": tr("stop a workspace; its files are kept"),
        "start": tr("start a stopped or failed workspace"),
    })  # fmt: skip
    words = tr("delete a workspace with its files")
    automation.add_removal(group, "workspaces", "WORKSPACE", words, has_trash=True)
    guests.declare(group)


def create(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Create a workspace and wait until it runs. Raises Failure where it does not start."""
    names = ("name", "title", "gpu", "cpu", "ram", "tenant", "environment", "datasets", "job", "model")
    names += ("gpu_type", "idle_minutes", "hours")
    fields = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    row = rest.send("POST", "workspaces", fields).json()
    if not options.detach:
        row = wait(rest, row, say)
    if row["state"] != "ready" and not options.detach:
        raise Failure(REFUSED, tr("{name}: {value}", name=options.name, value=row["reason"]))
    options.show = _print
    return row


def wait(rest: Rest, row: dict, say) -> dict:
    """Wait until a workspace that is starting is up or has failed, and say why it waits. Raises Failure."""
    said = ""
    while row["state"] == "creating":
        if row["reason"] not in ("", said):
            said = row["reason"]
            say(said)
        time.sleep(LOOK_EVERY_S)
        row = rest.get(_path(row["name"]))
    return row


def list_workspaces(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest workspaces. Raises Failure."""
    columns = (
        (tr("NAME"), lambda row: row["name"]),
        (tr("STATE"), _state),
        (tr("AGE"), lambda row: objects.age(row["created"])),
        (tr("SIZE"), lambda row: "-" if row.get("size") is None else size(row["size"])),
        (tr("ADDRESS"), lambda row: row["url"]),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("workspaces", options.limit)


def open_page(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Open a workspace in the browser, where its owner has to be logged in, and return it. Raises Failure."""
    row = rest.get(_path(options.name))
    options.show = _print
    if row["state"] == "ready":
        webbrowser.open(row["url"])
    return row


def _path(name: str) -> str:
    return f"workspaces/{quote(name, safe='')}"


def _state(row: dict) -> str:
    return "queued" if row["queued"] else {"creating": "starting", "ready": "running"}.get(row["state"], row["state"])


def _print(row: dict) -> None:
    shown.line(row["url"] if row["state"] == "ready" else _state(row))
    if row["reason"]:
        shown.line(row["reason"])
