"""`rollout`: the rollouts that wait for the approval of a tenant's administrators, and the shadows of applications."""

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
    group = command.group("rollout", tr("approve rollouts of a tenant; shadows of applications"))
    parser = group("ls", list_rollouts, tr("list the rollouts that wait for an approval"))
    parser.add_argument("--tenant", help=tr("only of this tenant (default: all that you administer)"))
    parser = group("approve", approve, tr("approve the next step of a rollout"))
    parser.add_argument("app", metavar="OWNER/APP", type=_application)
    parser.add_argument("--tenant", help=tr("only of this tenant (default: all that you administer)"))
    parser.add_argument("--percent", type=int, metavar="N", help=tr("approve it only if it is to N % of the requests"))
    parser = group("shadow", shadow, tr("copy requests to another model, and compare its answers"))
    parser.add_argument("name", metavar="APP")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--percent", type=int, default=100, metavar="N", help=tr("of the requests (default: 100)"))
    parser.add_argument("--minutes", type=int, default=0, metavar="N", help=tr("end it then (default: when you do)"))
    parser.add_argument(
        "--tolerance", type=float, metavar="X", help=tr("how far equal numbers may be apart, as a share")
    )
    parser.add_argument("--ignore", action="append", metavar="FIELD", help=tr("do not compare this field of answers"))
    for name, verb, words in (
        ("compared", compared, tr("show how the answers of an application and its shadow differ")),
        ("promote", promote, tr("let an application serve the model of its shadow")),
        ("end", end, tr("end the shadow of an application")),
    ):
        group(name, verb, words).add_argument("name", metavar="APP")


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


# --- shadows --------------------------------------------------------------------------------------------------------
def shadow(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Start a shadow; return the application. Raises Failure."""
    body = {"model_name": options.model, "percent": options.percent, "minutes": options.minutes}
    more = {"tolerance": options.tolerance, "ignore": options.ignore}
    body |= {field: value for field, value in more.items() if value is not None}
    app = rest.send("PUT", _shadow(options.name), body).json()
    options.show = lambda row: None
    say(tr("{percent} % of the requests are copied once {model} is up", percent=options.percent,
           model=options.model))  # fmt: skip
    return app


def compared(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Return what came of a shadow. Raises Failure."""
    options.show = _print_shadow
    return rest.get(_shadow(options.name))


def promote(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Let an application serve the model of its shadow; return the application. Raises Failure."""
    app = rest.send("PUT", f"{_shadow(options.name)}:promote", {}).json()
    options.show = lambda row: None
    if (app["rollout"] or {}).get("proposed"):
        say(tr("an administrator of the tenant has to approve it"))
    else:
        say(tr("{name} serves {model}", name=options.name, model=app["model_name"]))
    return app


def end(rest: Rest, options: argparse.Namespace, say) -> dict:
    """End the shadow of an application; return the application. Raises Failure."""
    options.show = lambda row: None
    return rest.send("DELETE", _shadow(options.name)).json()


def _shadow(name: str) -> str:
    return f"apps/{quote(name, safe='')}/shadow"


def _print_shadow(row: dict) -> None:
    state = row["outcome"] or ("starting" if row["began"] is None else "running")
    shown.line(f"{row['serves']} > {row['model_name']}: {row['percent']} %, {state}")
    if row["reason"]:
        shown.line(row["reason"])
    counts = ("compared", "equal", "different", "status", "failed", "unknown", "dropped", "unfit")
    shown.line(", ".join(f"{name} {row[name]}" for name in counts))
    for model, side in ((row["serves"], "base"), (row["model_name"], "shadow")):
        latency = {name: "-" if ms is None else f"{ms:g}" for name, ms in row[side].items()}
        shown.line(tr("{model}: p50 {p50_ms} ms, p95 {p95_ms} ms", model=model, **latency))
