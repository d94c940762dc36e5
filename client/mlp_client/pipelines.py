"""`pipeline`: the definition in a file is stored with its scripts, run, and its steps are followed."""

from __future__ import annotations

import argparse
import json
import os
from urllib.parse import quote

from . import automation, objects, shown
from .connection import Rest
from .definitions import Definition
from .interrupting import Followed
from .texts import tr
from .transfer.errors import LOCAL, USAGE, Failure


def declare(command) -> None:
    """Add the verbs."""
    pipelines = command.group("pipeline", tr("run a graph of jobs"))
    parser = pipelines("run", run_pipeline, tr("run a pipeline, of a file or of the platform, and follow the run"))
    parser.add_argument("file", metavar="FILE|PIPELINE", help=tr("YAML or JSON; or the name of a stored pipeline"))
    automation.add_sending(parser)
    parser.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help=tr("value of a parameter of the pipeline")
    )
    parser.add_argument("--fresh", action="store_true", help=tr("run unchanged steps, too"))
    automation.add_following(parser)
    automation.add_list(pipelines, list_pipelines)
    parser = automation.add_name(
        pipelines("show", show_run, tr("print a run of a pipeline with its steps")), "PIPELINE"
    )
    _run(parser)
    automation.add_follow(parser)
    _run(automation.add_name(pipelines("cancel", cancel_run, tr("cancel a run and its jobs")), "PIPELINE"))
    for verb, text in (("approve", tr("approve a step that waits for it")), ("reject", tr("reject such a step"))):
        parser = automation.add_name(pipelines(verb, answer_step, text), "PIPELINE")
        parser.add_argument("step", metavar="STEP")
        _run(parser)
        parser.set_defaults(verb=verb)
    automation.add_removal(pipelines, "pipelines", "PIPELINE", tr("delete a pipeline with its runs; its jobs stay"))


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=int, metavar="N", dest="number", help=tr("number of the run (default: the last)"))


def run_pipeline(rest: Rest, options: argparse.Namespace, say):
    """Store the pipeline of a file, or take one that is stored, and run it. Raises Failure."""
    name, body = options.file, {"params": dict(getattr(options, "params", {})), "fresh": options.fresh}
    for text in options.param:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise Failure(USAGE, tr("--param {text}: NAME=VALUE is needed", text=text))
        body["params"][key] = _scalar(value)
    if _is_file(options.file):
        name = _store_pipeline(rest, Definition(options.file, options.name or ""), options, say)
    if not body["params"]:
        del body["params"]
    run = rest.send("POST", f"pipelines/{quote(name, safe='')}/runs", body).json()
    say(tr("run {number}: {url}/pipelines/{name}/runs/{number}", number=run["number"], url=rest.web.url, name=name))
    if options.detach:
        options.show = lambda row: shown.line(str(row["number"]))
        return run
    return follow_run(rest, name, run["number"], options, say)


def _is_file(text: str) -> bool:
    """Return whether it names a file; a name of a pipeline has letters only. Raises Failure for a missing file."""
    if text.isalpha() and text.islower() and text.isascii():
        return False
    if not os.path.isfile(text):
        raise Failure(LOCAL, tr("{file}: no such file", file=text))
    return True


def _store_pipeline(rest: Rest, definition: Definition, options: argparse.Namespace, say) -> str:
    definition.send(rest, options, say)
    if definition.name:
        there = rest.web.call("GET", rest.path(f"pipelines/{quote(definition.name, safe='')}"), expect=(403,))
        if there.status == 200:
            definition.without_name()
            definition.post(rest, f"pipelines/{quote(definition.name, safe='')}", "PUT")
            return definition.name
    return definition.post(rest, "pipelines").json()["name"]


def _scalar(text: str):
    """Return a number, true, false or null as JSON has it, anything else as the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, (dict, list, str)) else value


def list_pipelines(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest pipelines. Raises Failure."""
    columns = (
        (tr("NAME"), lambda row: row["name"]),
        (tr("STEPS"), lambda row: len(row["steps"])),
        (tr("RUNS"), lambda row: row["runs"]),
        (tr("AGE"), lambda row: objects.age(row["created"])),
        (tr("TITLE"), lambda row: row["title"]),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("pipelines", options.limit)


def _place(rest: Rest, options: argparse.Namespace) -> str:
    """Return the path of the run that the options name. Raises Failure."""
    path = f"pipelines/{quote(options.name, safe='')}"
    number = options.number
    if number is None:
        runs = rest.rows(path + "/runs", 1)
        if not runs:
            raise Failure(USAGE, tr("pipeline {name} has no runs", name=options.name))
        number = runs[0]["number"]
    return f"{path}/runs/{number}"


def show_run(rest: Rest, options: argparse.Namespace, say):
    """Return a run with its steps; follow it with --follow. Raises Failure."""
    path = _place(rest, options)
    if options.follow:
        return follow_run(rest, options.name, int(path.rpartition("/")[2]), options, say, default="detach")
    options.show = _print_run
    return rest.get(path)


def cancel_run(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Cancel a run. Raises Failure."""
    options.show = _print_run
    return rest.send("PUT", _place(rest, options) + ":cancel").json()


def answer_step(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Approve or reject a step. Raises Failure."""
    options.show = _print_run
    return rest.send("PUT", f"{_place(rest, options)}/steps/{quote(options.step, safe='')}:{options.verb}").json()


def follow_run(rest: Rest, name: str, number: int, options: argparse.Namespace, say, default: str = "cancel"):
    """Print what each step does until the run has ended; return it. Raises Failure."""
    path = f"pipelines/{quote(name, safe='')}/runs/{number}"
    followed = Followed(
        f"{path}:cancel",
        tr("[c]ancel the run, [d]etach, or Enter to go on: "),
        tr("run {number} is being cancelled", number=number),
        tr("run {number} goes on; follow it by: mlp pipeline show -f {name} --run {number}", name=name, number=number),
    )
    told: dict = {}

    def look():
        """Tell what is new; return the run when it has ended."""
        run = rest.get(path)
        for step in run["steps"]:
            if told.get(step["name"], "waiting") != step["state"]:
                say(_step_line(step))
                if step["state"] == "approval":
                    say(tr("answer by: mlp pipeline approve {name} {step} --run {number}, or reject",
                           name=name, step=step["name"], number=number))  # fmt: skip
            told[step["name"]] = step["state"]
        return run if run["state"] in automation.OVER else None

    run = automation.until(look, rest, followed, options, say, default)
    options.show = lambda row: shown.line(tr("{name}: {value}", name=f"{name} {number}", value=_outcome_line(row)))
    return run


def _step_line(step: dict) -> str:
    job = tr("job {name}", name=step["job"]) if step["job"] else ""
    return "  ".join(filter(None, [f"{step['name']}: {step['state']}", job, step["reason"]]))


def _outcome_line(run: dict) -> str:
    return ": ".join(filter(None, [automation.state_of(run), run["reason"]]))


def _print_run(run: dict) -> None:
    shown.line(tr("{name}: {value}", name=f"{run['pipeline']} {run['number']}", value=_outcome_line(run)))
    for step in run["steps"]:
        shown.line(_step_line(step))
