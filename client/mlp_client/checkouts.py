"""`checkouts`: what was sent with scripts stays in `.home/checkouts` for the next time; lists and removes it."""

from __future__ import annotations

import argparse
import json
import posixpath
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from . import objects, shown
from .connection import Rest
from .sending import PLACE
from .texts import tr
from .transfer.errors import REFUSED, USAGE, Failure
from .transfer.progress import size
from .transfer.service import HOME

MOST = 1 << 20
LIVE = ("creating", "running")  # states of jobs that may read what was sent


def declare(command) -> None:
    """Add the verbs."""
    group = command.group("checkouts", tr("list and remove what was sent with scripts"))
    group("ls", list_checkouts, tr("list them, those that were sent last first"))
    parser = group("rm", remove, tr("remove them; the next run sends everything again"))
    parser.add_argument("names", metavar="CHECKOUT", nargs="*")
    words = tr("all that were sent more than N days ago, and that nothing uses")
    parser.add_argument("--older", type=float, metavar="N", help=words)


def list_checkouts(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the checkouts: name, files, bytes, the time of the newest file, and what uses them. Raises Failure."""
    columns = (
        (tr("NAME"), lambda row: row["name"]),
        (tr("FILES"), lambda row: row["files"]),
        (tr("SIZE"), lambda row: size(row["bytes"])),
        (tr("AGE"), lambda row: objects.age(row["sent"])),
        (tr("USED BY"), lambda row: ", ".join(row["used_by"]) or "-"),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return _listed(rest)


def remove(rest: Rest, options: argparse.Namespace, say) -> list:
    """Remove checkouts; return those that were removed. Raises Failure."""
    if bool(options.names) == (options.older is not None):
        raise Failure(USAGE, tr("CHECKOUT or --older is needed, and not both"))
    rows = {row["name"]: row for row in _listed(rest)}
    if options.names:
        for name in options.names:
            if name not in rows:
                raise Failure(REFUSED, tr("{name}: no such checkout", name=name))
            if rows[name]["used_by"]:
                users = ", ".join(rows[name]["used_by"])
                raise Failure(REFUSED, tr("{name} is used by {users}", name=name, users=users))
        chosen = [rows[name] for name in options.names]
    else:
        now = datetime.now(timezone.utc)
        chosen = [
            row for row in rows.values() if not row["used_by"] and (now - _moment(row)).days >= max(0, options.older)
        ]
    for row in chosen:
        rest.data.remove(HOME, f"{PLACE}/{row['name']}")
        say(tr("{name} is deleted", name=row["name"]))
    options.show = lambda removed: None
    return chosen


def _moment(row: dict) -> datetime:
    return datetime.fromisoformat(row["sent"])


def _listed(rest: Rest) -> list:
    files: dict = {}
    if rest.web.call("PROPFIND", rest.data.file_path(HOME, PLACE), None, {"Depth": "0"}, (404,)).status != 404:
        files = rest.data._propfind(HOME, PLACE, "infinity")
    folders: dict = {}
    for path, file in files.items():
        folders.setdefault(path.split("/")[1], []).append(file)
    users = _users(rest) if folders else []
    rows = [
        {
            "name": name,
            "files": len(inside),
            "bytes": sum(file.size for file in inside),
            "sent": max(parsedate_to_datetime(file.modified) for file in inside).isoformat(),
            "used_by": [user for user, text in users if f"{PLACE}/{name}/" in text],
        }
        for name, inside in folders.items()
        if posixpath.join(PLACE, name) not in files  # a file that somebody put beside them
    ]
    return sorted(rows, key=lambda row: row["sent"], reverse=True)


def _users(rest: Rest) -> list:
    """Return what may read files where they were sent: (what it is, its definition as text)."""
    lists = [("job", "jobs", {"state": state}) for state in LIVE]
    lists += [("schedule", "schedules", {}), ("pipeline", "pipelines", {})]
    return [
        (f"{kind} {row['name']}", json.dumps(row))
        for kind, path, query in lists
        for row in rest.rows(path, MOST, **query)
    ]
