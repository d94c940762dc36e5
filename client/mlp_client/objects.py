"""The verbs on jobs that are there: `ps`, `logs`, `metrics`, `cancel`, `rerun`, `queue`, `open`."""

from __future__ import annotations

import argparse
import re
import webbrowser
from datetime import datetime, timezone
from urllib.parse import quote

from . import interrupting, running, shown
from .connection import Rest
from .following import Follower
from .texts import tr
from .transfer.errors import REFUSED, USAGE, Failure
from .transfer.progress import duration

MOST = 1000
RERUN = ("name", "title", "gpu", "cpu", "ram", "retries", "timeout", "priority", "network", "environment", "image")
RERUN += ("gpu_type",)


def declare(command) -> None:
    """Add the verbs."""
    parser = command("ps", ps, tr("list jobs, newest first"))
    parser.add_argument("--state", choices=("creating", "running", "finished", "error"), help=tr("only those"))
    parser.add_argument("-n", "--limit", type=count, default=20, metavar="N", help=tr("at most N (default: 20)"))
    parser = command("logs", logs, tr("print the log of a job"))
    parser.add_argument("name", metavar="JOB")
    parser.add_argument("-f", "--follow", action="store_true", help=tr("follow it to the end; exit as the job did"))
    interrupting.options_of(parser)
    parser = command("metrics", metrics, tr("print what a job has reported"))
    parser.add_argument("name", metavar="JOB")
    parser.add_argument("-n", "--limit", type=count, default=20, metavar="N", help=tr("at most N (default: 20)"))
    parser = command("cancel", cancel, tr("cancel jobs"))
    parser.add_argument("names", metavar="JOB", nargs="+")
    parser = command("rerun", rerun, tr("run a job again, with its code as it was"))
    parser.add_argument("job", metavar="JOB")
    parser.add_argument(
        "--set", action="append", default=[], metavar="ARG=VALUE", help=tr("replace an argument: lr=0.01")
    )
    running.job_options(parser, RERUN)
    interrupting.options_of(parser)
    parser.add_argument("-d", "--detach", action="store_true", help=tr("print the job's name and do not follow it"))
    command("queue", queue, tr("list your queued jobs and why they wait"))
    parser = command("open", open_page, tr("open the page of a job in the browser"))
    parser.add_argument("name", metavar="JOB", nargs="?")


def ps(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest jobs. Raises Failure."""
    columns = (
        (tr("NAME"), lambda job: job["name"]),
        (tr("STATE"), shown_state),
        (tr("PROGRESS"), lambda job: f"{job['progress']}%"),
        (tr("AGE"), lambda job: age(job["created"])),
        (tr("TITLE"), lambda job: job["title"] or job["entry"]),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("jobs", options.limit, state=options.state)


def shown_state(job: dict) -> str:
    """Return the state as pages name it."""
    if job["state"] == "creating":
        return "queued"
    return (job.get("outcome") or "failed") if job["state"] == "error" else job["state"]


def age(moment: str) -> str:
    """Return the time since then, such as `3:07` minutes or `2d`."""
    text = re.sub(r"\.\d+", "", moment).replace("Z", "+00:00")
    seconds = max(0.0, (datetime.now(timezone.utc) - datetime.fromisoformat(text)).total_seconds())
    return f"{int(seconds // 86400)}d" if seconds >= 86400 else duration(seconds)


def logs(rest: Rest, options: argparse.Namespace, say):
    """Print the log, with --follow to the end of the job. Raises Failure."""
    name = quote(options.name, safe="")
    if options.follow:
        return running.follow(rest, name, options, say, default="detach")
    follower = Follower(rest, name)
    if not options.json:
        follower.print_what_is_there()
        return None
    parts: list = []
    follower.print = parts.append
    follower.print_what_is_there()
    return {"job": options.name, "log": "".join(parts), "next_offset": follower.offset}


def metrics(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest reports, oldest first. Raises Failure."""

    def number(row: dict, name: str) -> str:
        return "-" if row[name] is None else f"{row[name]:.6g}"

    columns = (
        (tr("EPOCH"), lambda row: row["epoch"]),
        (tr("LOSS"), lambda row: number(row, "loss")),
        (tr("ACCURACY"), lambda row: number(row, "accuracy")),
        (tr("PROGRESS"), lambda row: f"{row['progress']}%"),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows(f"jobs/{quote(options.name, safe='')}/metrics", options.limit)[::-1]


def cancel(rest: Rest, options: argparse.Namespace, say) -> list:
    """Cancel the jobs; return them. Raises Failure for the first that cannot be cancelled, after the others."""
    done, refusals = [], []
    for name in options.names:
        answer = rest.send("PUT", f"jobs/{quote(name, safe='')}:cancel", expect=(403,))
        if answer.status == 403:
            refusals.append((name, answer))
        else:
            done.append(answer.json())
            say(tr("job {name} is being cancelled", name=name))
    for name, answer in refusals[1:]:
        say(f"{name}: {answer.msg}")
    if refusals:
        raise Failure(REFUSED, f"{refusals[0][0]}: {refusals[0][1].msg}")
    options.show = lambda rows: None
    return done


def rerun(rest: Rest, options: argparse.Namespace, say):
    """Submit a job like that one, and follow it unless --detach is given. Raises Failure."""
    path = f"jobs/{quote(options.job, safe='')}"
    fields = running.fields_of(options)
    if options.set:
        fields["args"] = rest.get(path)["args"]
        for setting in options.set:
            name, equals, value = setting.partition("=")
            if not equals or not name.strip("-"):
                raise Failure(USAGE, tr("--set {text}: ARG=VALUE is needed", text=setting))
            fields["args"] = replaced(fields["args"], name.lstrip("-"), value)
    job = rest.send("POST", path + ":rerun", fields).json()
    return running.follow_new(rest, job, options, say)


def replaced(args: list, name: str, value: str) -> list:
    """Return the arguments with another value of one, in the form that it has there: `--lr 1`, `--lr=1` or `lr=1`."""
    edited, index, is_replaced = list(args), 0, False
    while index < len(edited):
        given = re.fullmatch(r"(--?|\+)?" + re.escape(name) + r"(=.*)?", edited[index], re.DOTALL)
        if given and given.group(2) is not None:
            edited[index], is_replaced = (given.group(1) or "") + f"{name}={value}", True
        elif given and given.group(1) in ("-", "--"):
            end = index + 1
            while end < len(edited) and (end == index + 1 or _is_number(edited[end])) and not _is_option(edited[end]):
                end += 1
            edited[index + 1 : end], is_replaced = [value], True
            index += 1
        index += 1
    return edited if is_replaced else [*edited, f"--{name}", value]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_option(text: str) -> bool:
    return text.startswith("-") and not _is_number(text)


def queue(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the queued jobs with their places. Raises Failure."""
    rows = []
    for job in rest.rows("jobs", MOST, state="creating"):
        answer = rest.web.call("GET", rest.path(f"jobs/{job['name']}/queue"), expect=(403,))
        if answer.status == 200:  # else it has started meanwhile
            rows.append({"name": job["name"], **answer.json()})
    columns = (
        (tr("POSITION"), lambda row: row["position"]),
        (tr("NAME"), lambda row: row["name"]),
        (tr("REASON"), lambda row: row["reason"]),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return sorted(rows, key=lambda row: row["position"])


def open_page(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Open the page in the browser, and return its address. Raises Failure."""
    if options.name:
        rest.get(f"jobs/{quote(options.name, safe='')}")
    address = f"{rest.web.url}/jobs" + (f"/{quote(options.name, safe='')}" if options.name else "")
    if not webbrowser.open(address):
        say(tr("no browser was found; open the address yourself"))
    options.show = lambda page: shown.line(page["url"])
    return {"url": address}


def count(text: str) -> int:
    """Return a number of rows. Raises ValueError."""
    value = int(text)
    if not 1 <= value <= 1_000_000:
        raise ValueError
    return value


count.__name__ = "number"
