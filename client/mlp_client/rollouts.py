"""`rollout`: the rollouts that wait for the approval of a tenant's administrators."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from . import objects, shown
from .connection import Rest
from .texts import tr
from .transfer.errors import USAGE, Failure

KEY = ("user", "name", "run", "percent")  # of what is approved


def declare(command) -> None:
    """Add the verbs."""
    group = command.group("rollout", tr("approve rollouts of applications, as an administrator of a tenant"))
    parser = group("ls", list_rollouts, tr("list the rollouts that wait for an approval"))
    parser.add_argument("--tenant", help=tr("only of this tenant (default: all that you administer)"))
    parser = group("approve", approve, tr("approve the next step of a rollout"))
    parser.add_argument("app", metavar="OWNER/APP", type=_application)
    parser.add_argument("--tenant", help=tr("only of this tenant (default: all that you administer)"))
    parser.add_argument("--percent", type=int, metavar="N", help=tr("approve it only if it is to N % of the requests"))


def _application(text: str) -> tuple:
    owner, slash, name = text.partition("/")
    if not (owner and slash and name):
        raise argparse.ArgumentTypeError(tr("{text}: OWNER/APP is needed", text=text))
    return owner, name


def list_rollouts(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return what waits for an approval. Raises Failure."""
    columns = (
        (tr("APPLICATION"), lambda row: f"{row['user']}/{row['name']}"),
        (tr("TENANT"), lambda row: row["tenant"]),
        (tr("SERVES"), lambda row: row["serves"]),
        (tr("MOVES TO"), lambda row: row["model_name"]),
        (tr("NOW"), lambda row: f"{row['now']} %"),
        (tr("NEXT"), lambda row: f"{row['percent']} %"),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return _waiting(rest, options.tenant)


def approve(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Approve the next step of a rollout; return what was approved. Raises Failure."""
    owner, name = options.app
    found = [row for row in _waiting(rest, options.tenant) if (row["user"], row["name"]) == options.app]
    if not found:
        raise Failure(USAGE, tr("no rollout of {name} waits for your approval", name=f"{owner}/{name}"))
    row = found[0]
    if options.percent not in (None, row["percent"]):
        words = tr("the next step of {name} is to {percent} % of the requests", name=f"{owner}/{name}", **_step(row))
        raise Failure(USAGE, words)
    rest.send("PUT", f"{_rollouts(row['tenant'])}:approve", {key: row[key] for key in KEY})
    options.show = lambda approved: None
    say(tr("{percent} % of the requests of {name} are approved", name=f"{owner}/{name}", **_step(row)))
    return row


def _step(row: dict) -> dict:
    return {"percent": row["percent"]}


def _waiting(rest: Rest, tenant) -> list:
    """Return what waits in a tenant, or in all that the user administers."""
    tenants = [tenant] if tenant else [row["tenant"] for row in rest.get("tenants") if row["role"] == "admin"]
    return [{"tenant": name, **row} for name in tenants for row in rest.rows(_rollouts(name), objects.MOST)]


def _rollouts(tenant: str) -> str:
    return f"/tenants/{quote(tenant, safe='')}/rollouts"
