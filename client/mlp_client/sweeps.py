"""`sweep`: the definition in a file is sent with its script, and its trials are followed."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from . import automation, objects, shown
from .connection import Rest
from .definitions import Definition
from .interrupting import Followed
from .texts import tr
from .transfer.errors import USAGE, Failure

ENDED_TRIALS = ("complete", "pruned", "failed", "cancelled")


def declare(command) -> None:
    """Add the verbs."""
    sweeps = command.group("sweep", tr("search for the best arguments of a script"))
    parser = automation.add_definition(sweeps("run", run_sweep, tr("begin the sweep of a file, and follow it")))
    automation.add_following(parser)
    automation.add_list(sweeps, list_sweeps)
    parser = automation.add_name(sweeps("show", show_sweep, tr("print a sweep and its best trial")), "SWEEP")
    automation.add_follow(parser)
    parser = automation.add_name(sweeps("extend", extend_sweep, tr("let a sweep make more trials")), "SWEEP")
    parser.add_argument("--trials", type=int, metavar="N", help=tr("so many more"))
    parser.add_argument("--parallel", type=int, metavar="N", help=tr("at the same time"))
    automation.add_calls(sweeps, "sweeps", "SWEEP", {
        "pause": tr("let running trials end and make no new ones"),
        "resume": tr("let a sweep that is paused or has failed go on"),
        "cancel": tr("cancel a sweep and its trials"),
    })  # fmt: skip
    automation.add_removal(sweeps, "sweeps", "SWEEP", tr("cancel a sweep's trials and forget it; its jobs stay"))


def run_sweep(rest: Rest, options: argparse.Namespace, say):
    """Begin the sweep of a file, and follow it unless --detach is given. Raises Failure."""
    definition = Definition(options.file, options.name or "")
    definition.send(rest, options, say)
    sweep = definition.post(rest, "sweeps").json()
    say(tr("sweep {name}: {url}/sweeps/{name}", name=sweep["name"], url=rest.web.url))
    if options.detach:
        options.show = lambda row: shown.line(row["name"])
        return sweep
    return follow_sweep(rest, sweep["name"], options, say)


def list_sweeps(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest sweeps. Raises Failure."""
    columns = (
        (tr("NAME"), lambda row: row["name"]),
        (tr("STATE"), automation.state_of),
        (tr("TRIALS"), lambda row: f"{sum(row['counts'][state] for state in ENDED_TRIALS)}/{row['trials']}"),
        (tr("AGE"), lambda row: objects.age(row["created"])),
        (tr("BEST"), lambda row: "; ".join(_values(row, trial) for trial in row["best"][:1])),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("sweeps", options.limit)


def show_sweep(rest: Rest, options: argparse.Namespace, say):
    """Return a sweep; follow it with --follow. Raises Failure."""
    if options.follow:
        return follow_sweep(rest, quote(options.name, safe=""), options, say, default="detach")
    options.show = lambda row: _print_sweep(row)
    return rest.get(f"sweeps/{quote(options.name, safe='')}")


def extend_sweep(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Let a sweep make more trials. Raises Failure."""
    given = {name: getattr(options, name) for name in ("trials", "parallel") if getattr(options, name) is not None}
    if not given:
        raise Failure(USAGE, tr("--trials or --parallel is needed"))
    options.show = lambda row: _print_sweep(row)
    return rest.send("PUT", f"sweeps/{quote(options.name, safe='')}:extend", given).json()


def follow_sweep(rest: Rest, name: str, options: argparse.Namespace, say, default: str = "cancel"):
    """Print each trial that ends until the sweep has ended; return it. Raises Failure."""
    followed = Followed(
        f"sweeps/{name}:cancel",
        tr("[c]ancel the sweep, [d]etach, or Enter to go on: "),
        tr("sweep {name} is being cancelled", name=name),
        tr("sweep {name} goes on; follow it by: mlp sweep show -f {name}", name=name),
    )
    told: set = set()
    state = [""]

    def look():
        """Tell what is new; return the sweep when it has ended."""
        sweep = rest.get(f"sweeps/{name}")
        if sum(sweep["counts"][each] for each in ENDED_TRIALS) > len(told):
            for trial in reversed(rest.rows(f"sweeps/{name}/trials", 1 << 20)):
                if trial["state"] in ENDED_TRIALS and trial["number"] not in told:
                    told.add(trial["number"])
                    say(_trial_line(sweep, trial))
        if sweep["state"] == "paused" != state[0]:
            say(tr("sweep {name} is paused; resume it by: mlp sweep resume {name}", name=name))
        state[0] = sweep["state"]
        return sweep if sweep["state"] in automation.OVER else None

    sweep = automation.until(look, rest, followed, options, say, default)
    options.show = lambda row: _print_sweep(row)
    return sweep


def _trial_line(sweep: dict, trial: dict) -> str:
    parts = [tr("trial {number} {state}", number=trial["number"], state=trial["state"])]
    return "  ".join(filter(None, [*parts, _values(sweep, trial), _params(trial), trial["reason"]]))


def _values(sweep: dict, trial: dict) -> str:
    pairs = zip(sweep["objectives"], trial["values"] or ())  # noqa: B905 (3.10)
    return " ".join(f"{objective['metric']} {_number(value)}" for objective, value in pairs if value is not None)


def _params(trial: dict) -> str:
    return " ".join(f"{name}={_number(value)}" for name, value in trial["params"].items())


def _number(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _print_sweep(sweep: dict) -> None:
    shown.line(tr("{name}: {value}", name=sweep["name"], value=automation.state_of(sweep)))
    if sweep["reason"]:
        shown.line(sweep["reason"])
    for trial in sweep["best"]:
        job = tr("job {name}", name=trial["job"]) if trial["job"] else ""
        line = "  ".join(filter(None, [_values(sweep, trial), _params(trial), job]))
        shown.line(tr("best trial {number}: {line}", number=trial["number"], line=line))
