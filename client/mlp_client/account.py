"""`login`, `logout` and `whoami`."""

from __future__ import annotations

import argparse
import getpass
import os
import sys

from . import profiles
from .connection import Connection, Rest, probe
from .texts import tr
from .transfer.errors import LOGIN, REFUSED, USAGE, Failure


def declare(command) -> None:
    """Add the verbs."""
    made = command("login", login, tr("log in and save the token"), connects=False)
    made.add_argument("address", metavar="URL", help=tr("address of the platform, such as http://host:30001"))
    made.add_argument("--token-stdin", action="store_true", help=tr("read the token from standard input"))
    command("logout", logout, tr("remove the saved token"), connects=False)
    command("whoami", whoami, tr("print the user, the address and the profile"))


def login(_rest, options: argparse.Namespace, say) -> dict:
    """Check the address and the token, or username and password, and save them as a profile. Raises Failure."""
    url = options.address.rstrip("/")
    name = options.profile or os.environ.get("MLP_PROFILE") or "default"
    cacert = options.cacert or os.environ.get("MLP_CACERT") or ""
    cacert = os.path.abspath(cacert) if cacert else ""
    web = Connection(url, cacert, options.patience, say)  # refuses what is no address
    probe(url, cacert)
    rest = Rest(web)
    token = sys.stdin.readline().strip() if options.token_stdin else options.token or ""
    if token or options.token_stdin:
        named = options.user or os.environ.get("MLP_USER") or ""
        rest.authenticate(token, named)
        owner = rest.owner()
        if owner != rest.user:
            raise Failure(LOGIN, tr("this is a token of {user}, not of {other}", user=owner, other=named))
    else:
        user, password = _asked(options.user or "", url)
        try:
            token = rest.data.token_for(user, password)
        except Failure as failure:
            raise Failure(LOGIN if failure.code == REFUSED else failure.code, failure.line)
        rest.user = user
    profiles.save(name, url, rest.user, token, cacert)
    return {"url": url, "user": rest.user, "profile": name, "file": str(profiles.place())}


def _asked(user: str, url: str) -> tuple[str, str]:
    """Return username and password, asked for on a terminal, else read as lines of standard input."""
    try:
        if sys.stdin.isatty():
            user = user or input(tr("Username: ")).strip()
            password = getpass.getpass(tr("Password of {user} at {url}: ", user=user, url=url))
        else:
            user = user or sys.stdin.readline().strip()
            password = sys.stdin.readline().rstrip("\r\n")
    except EOFError:
        password = ""
    if not user or not password:
        raise Failure(LOGIN, tr("no username or no password given"))
    return user, password


def logout(_rest, options: argparse.Namespace, say) -> dict:
    """Remove the profile from this machine; the token stays valid. Raises Failure."""
    name = profiles.chosen(options)
    if not profiles.forget(name):
        raise Failure(USAGE, tr("there is no profile {name}", name=name))
    return {"profile": name, "removed": True}


def whoami(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Return who the token belongs to, as the platform says. Raises Failure."""
    return {"user": rest.owner(), "url": rest.web.url, "profile": options.where.profile}
