"""`login`, `logout` and `whoami`."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import socket
import sys
import time
import webbrowser

from . import profiles, shown
from .connection import Connection, Rest, probe
from .texts import tr
from .transfer.errors import LOGIN, REFUSED, USAGE, Failure

JSON = {"Content-Type": "application/json"}


def declare(command) -> None:
    """Add the verbs."""
    parser = command("login", login, tr("log in and save the token"), connects=False)
    parser.add_argument("address", metavar="URL", help=tr("address of the platform, such as http://host:30001"))
    parser.add_argument("--token-stdin", action="store_true", help=tr("read the token from standard input"))
    parser.add_argument("--browser", action="store_true", help=tr("confirm it in a browser (default on a terminal)"))
    parser.add_argument("--password", action="store_true", help=tr("ask for username and password"))
    command("logout", logout, tr("remove the saved token"), connects=False)
    command("whoami", whoami, tr("print the user, the address and the profile"))


def login(_rest, options: argparse.Namespace, say) -> dict:
    """Check the address and the token, or username and password, and save them as a profile. Raises Failure."""
    profiles.place()  # before anything is asked for
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
    elif options.browser or (sys.stdin.isatty() and not options.password and not options.user):
        rest.user, token = _confirmed(rest, say)
    else:
        user, password = _asked(options.user or "", url)
        try:
            token = rest.data.token_for(user, password)
        except Failure as failure:
            raise Failure(LOGIN if failure.code == REFUSED else failure.code, failure.line)
        rest.user = user
    profiles.save(name, url, rest.user, token, cacert)
    return {"url": url, "user": rest.user, "profile": name, "file": str(profiles.place())}


def _confirmed(rest: Rest, say) -> tuple[str, str]:
    """Return username and token once the user has confirmed it in a browser, here or elsewhere. Raises Failure."""
    host = re.sub("[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0])[:30]
    begun = rest.web.call("POST", "/api/v1/program_logins", _json({"program": f"mlp-{host}"}), JSON).json()
    shown.note(tr("Open {url} and type the code {code}", url=begun["url"], code=begun["code"]))
    if not webbrowser.open(begun["url"]):
        say(tr("no browser was found; open the address yourself"))
    path, end = f"/api/v1/program_logins/{begun['code']}", time.monotonic() + begun["expires_s"]
    while time.monotonic() < end:
        answer = rest.web.call("POST", path, _json({"secret": begun["secret"]}), JSON).json()
        if answer["state"] == "allowed":
            return answer["user"], answer["token"]
        if answer["state"] == "denied":
            raise Failure(LOGIN, tr("it was denied in the browser"))
        time.sleep(begun["poll_s"])
    raise Failure(LOGIN, tr("nobody has confirmed it within {minutes} minutes", minutes=begun["expires_s"] // 60))


def _json(body: dict) -> bytes:
    return json.dumps(body).encode("utf-8")


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
