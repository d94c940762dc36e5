"""`workspace guest`, `workspace invitations`, `accept` and `leave`: workspaces that several users work in."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from . import objects, shown
from .connection import Rest
from .texts import tr
from .transfer.errors import USAGE, Failure


def declare(group) -> None:
    """Add the verbs to the group `workspace`."""
    guests = group.group("guest", tr("the guests of your workspaces"), dest="third")
    for verb, run, text in (
        ("add", add, tr("invite a user to a workspace")),
        ("rm", remove, tr("remove a guest from a workspace, and close their connections")),
    ):
        parser = guests(verb, run, text)
        parser.add_argument("name", metavar="WORKSPACE")
        parser.add_argument("guest", metavar="USER")
    guests("ls", list_guests, tr("list the guests of a workspace")).add_argument("name", metavar="WORKSPACE")
    group("invitations", list_invitations, tr("list the workspaces of others to which you are invited"))
    for verb, run, text in (
        ("accept", accept, tr("accept an invitation")),
        ("leave", leave, tr("decline an invitation, or leave a workspace")),
    ):
        group(verb, run, text).add_argument("workspace", metavar="OWNER/WORKSPACE", type=_workspace)


def add(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Invite a user; return the guest. Raises Failure."""
    row = rest.send("PUT", _guests(options.name, options.guest)).json()
    options.show = lambda guest: None
    say(tr("{user} is invited to {name}", user=options.guest, name=options.name))
    return row


def remove(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Remove a guest. Raises Failure."""
    rest.send("DELETE", _guests(options.name, options.guest))
    options.show = lambda guest: None
    say(tr("{user} is no longer a guest of {name}", user=options.guest, name=options.name))
    return {"user": options.guest}


def list_guests(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the guests of a workspace, the last invited first. Raises Failure."""
    columns = (
        (tr("USER"), lambda row: row["user"]),
        (tr("AGE"), lambda row: objects.age(row["invited"])),
        (tr("STATE"), _state),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows(_guests(options.name), objects.MOST)


def list_invitations(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the workspaces of others to which the user is invited, newest first. Raises Failure."""
    columns = (
        (tr("WORKSPACE"), lambda row: f"{row['owner']}/{row['name']}"),
        (tr("STATE"), _state),
        (tr("ADDRESS"), lambda row: rest.web.url + row["address"]),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("workspace_invitations", objects.MOST)


def accept(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Accept an invitation, and say what that means; return the invitation. Raises Failure."""
    owner, _name = options.workspace
    row = rest.send("PUT", _invitation(options.workspace) + ":accept").json()
    say(tr("in this workspace you act as {owner}; its pages may act in your own workspaces", owner=owner))
    options.show = lambda invitation: shown.line(rest.web.url + invitation["address"])
    return row


def leave(rest: Rest, options: argparse.Namespace, say) -> dict:
    """End an invitation: decline it, or leave the workspace. Raises Failure."""
    owner, name = options.workspace
    rest.send("DELETE", _invitation(options.workspace))
    options.show = lambda invitation: None
    say(tr("you are no longer a guest of {name}", name=f"{owner}/{name}"))
    return {"owner": owner, "name": name}


def _state(row: dict) -> str:
    return "invited" if row["accepted"] is None else "accepted"


def _guests(name: str, guest: str = "") -> str:
    path = f"workspaces/{quote(name, safe='')}/guests"
    return f"{path}/{quote(guest, safe='')}" if guest else path


def _invitation(workspace: tuple) -> str:
    return "workspace_invitations/" + "/".join(quote(part, safe="") for part in workspace)


def _workspace(text: str) -> tuple:
    """Return the owner and the name of a workspace. Raises Failure."""
    owner, slash, name = text.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise Failure(USAGE, tr("{text}: OWNER/WORKSPACE is needed", text=text))
    return owner, name
