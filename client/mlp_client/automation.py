"""What the verbs of sweeps, pipelines and schedules share: options, calls without a body, and following."""

from __future__ import annotations

import argparse
import time
from urllib.parse import quote

from . import interrupting, objects, shown
from .connection import Rest
from .interrupting import Followed
from .texts import tr
from .transfer.errors import INTERRUPTED

LOOK_EVERY_S = 1.0
CANCELLED = 130
OVER = ("finished", "error")


def add_name(parser: argparse.ArgumentParser, what: str) -> argparse.ArgumentParser:
    """Add the name of an object as an argument; return the parser."""
    parser.add_argument("name", metavar=what)
    return parser


def add_definition(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add a definition in a file as an argument; return the parser."""
    parser.add_argument("file", metavar="FILE", help=tr("YAML or JSON"))
    add_sending(parser)
    return parser


def add_sending(parser: argparse.ArgumentParser) -> None:
    """Add the options of sending a definition."""
    parser.add_argument("--name", help=tr("name, instead of that in the file"))
    parser.add_argument("--root", metavar="DIR", help=tr("send this folder in place of the whole checkout"))


def add_following(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is begun and then followed."""
    parser.add_argument("-d", "--detach", action="store_true", help=tr("do not follow it"))
    interrupting.options_of(parser)


def add_follow(parser: argparse.ArgumentParser) -> None:
    """Add the options of what is shown, and followed with --follow."""
    parser.add_argument("-f", "--follow", action="store_true", help=tr("follow it to the end"))
    interrupting.options_of(parser)


def add_list(group, run) -> None:
    """Add the verb `ls` to a group."""
    parser = group("ls", run, tr("list them, newest first"))
    parser.add_argument(
        "-n", "--limit", type=objects.count, default=20, metavar="N", help=tr("at most N (default: 20)")
    )


def add_calls(group, kind: str, what: str, verbs: dict) -> None:
    """Add verbs that are one call without a body: {verb: help}."""
    for verb, text in verbs.items():
        add_name(group(verb, steer, text), what).set_defaults(verb=verb, kind=kind)


def add_removal(group, kind: str, what: str, text: str, has_trash: bool = False) -> None:
    """Add the verb `rm` to a group, with `--trash` for a kind that has one."""
    parser = add_name(group("rm", remove, text), what)
    parser.set_defaults(kind=kind, trash=False)
    if has_trash:
        parser.add_argument("--trash", action="store_true", help=tr("move it to the trash, where it can be restored"))


def steer(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Send one of the calls without a body; return the answer. Raises Failure."""
    answer = rest.send("PUT", f"{options.kind}/{quote(options.name, safe='')}:{options.verb}").json()
    options.show = lambda row: shown.line(tr("{name}: {value}", name=options.name, value=row.get("state", "")))
    return answer


def remove(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Delete it and wait until it is gone, or move it to the trash; return what it was. Raises Failure."""
    path = f"{options.kind}/{quote(options.name, safe='')}"
    options.show = lambda deleted: None
    if options.trash:
        row = rest.send("DELETE", path + "?trash=1").json()
        say(tr("{name} is in the trash until it is deleted or restored", name=options.name))
        return row
    row = rest.send("DELETE", path).json()
    while rest.web.call("GET", rest.path(path), expect=(403,)).status == 200:
        time.sleep(LOOK_EVERY_S)
    say(tr("{name} is deleted", name=options.name))
    return row


def state_of(row: dict) -> str:
    """Return the state; of what has ended in an error how it has."""
    return (row.get("outcome") or "failed") if row["state"] == "error" else row["state"]


def until(look, rest: Rest, followed: Followed, options: argparse.Namespace, say, default: str):
    """Wait until something has ended; let the command exit as that did, and return it."""
    while True:
        try:
            row = look()
            if row is not None:
                options.code = 0 if row["state"] == "finished" else CANCELLED if state_of(row) == "cancelled" else 1
                return row
            time.sleep(LOOK_EVERY_S)
        except KeyboardInterrupt:
            if not interrupting.stay(rest, followed, options, say, default):
                options.code = INTERRUPTED
                return None
