"""`ssh`: a shell, files and ports of a workspace by the machine's own OpenSSH, over a websocket of the platform.

`mlp ssh lab` starts `ssh` with this program as its ProxyCommand. With `mlp ssh --setup` any program that reads the
configuration of ssh reaches `lab.mlp`: scp, sftp, rsync, git, VS Code, PyCharm. The platform lets in by the token, over
TLS where it has TLS; SSH's own keys would add nothing to that, so none is asked for.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

from . import websocket, workspaces
from .connection import Connection, Rest
from .texts import tr
from .transfer.errors import LOCAL, REFUSED, UNREACHABLE, Failure

DOMAIN = ".mlp"
BEGIN, END = "# >>> mlp ssh --setup", "# <<< mlp ssh --setup"
OPTIONS = {
    "StrictHostKeyChecking": "no",
    "UserKnownHostsFile": "/dev/null",
    "LogLevel": "ERROR",
    "ServerAliveInterval": "30",
}
LINK = "-ssh"


def declare(command) -> None:
    """Add the verb."""
    parser = command("ssh", ssh, tr("open a shell in a workspace; after -- options of ssh and a command"))
    parser.add_argument("name", metavar="WORKSPACE", nargs="?", help=tr("its name"))
    parser.add_argument("--setup", action="store_true", help=tr("let ssh, scp, rsync and editors reach NAME.mlp"))
    parser.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)  # as the ProxyCommand
    parser.set_defaults(takes_args=True)


def ssh(rest: Rest, options: argparse.Namespace, say):
    """Open a shell, or do what `--setup` says; ends with the exit code of ssh. Raises Failure."""
    if options.setup:
        return set_up(options)
    if not options.name:
        options.parser.error(tr("WORKSPACE is missing"))
    if options.stdio:
        connect(rest, options, say)
        return None
    program = shutil.which("ssh")
    if program is None:
        raise Failure(LOCAL, tr("there is no ssh on this machine; install OpenSSH's client"))
    # What was given as options reaches the ProxyCommand without being seen by other users of the machine.
    where = options.where
    given = {"MLP_URL": where.url, "MLP_TOKEN": where.token, "MLP_USER": rest.user, "MLP_CACERT": where.cacert}
    os.environ.update({name: value for name, value in given.items() if value})
    words = [program, "-o", f"ProxyCommand={proxy_command(())}", "-l", rest.user]
    for name, value in OPTIONS.items():
        words += ["-o", f"{name}={value}"]
    before, after = _split(options.args)
    words += [*before, options.name + DOMAIN, *after]
    sys.stdout.flush()
    options.code = subprocess.call(words)
    return None


def _split(words: list) -> tuple:
    """Return the options of ssh at the begin of the words, and the command: ssh itself takes options before it only."""
    taking = "BbcDEeFIiJLlmOoPpQRSWw"
    place = 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] == "--":
            return words[:place], words[place + 1 :]
        place += 2 if len(words[place]) == 2 and words[place][1] in taking else 1
    return words[:place], words[place:]


def connect(rest: Rest, options: argparse.Namespace, say) -> None:
    """Connect standard input and output with the workspace, which is started first where it is stopped. Raises Failure,
    Trouble.
    """
    name = options.name[: -len(DOMAIN)] if options.name.endswith(DOMAIN) else options.name
    path = f"workspaces/{quote(name, safe='')}"
    row = rest.get(path)
    if row["state"] in ("stopped", "error"):
        say(tr("starting {name}", name=name))
        row = rest.send("PUT", f"{path}:start").json()
    row = workspaces.wait(rest, row, say)
    if row["state"] != "ready":
        raise Failure(REFUSED, tr("{name}: {value}", name=name, value=row["reason"] or row["state"]))
    parts = urlsplit(row["url"])
    web = Connection(f"{parts.scheme}://{parts.netloc}", options.where.cacert, options.patience)
    web.headers["Authorization"] = rest.web.headers["Authorization"]
    link = websocket.connect(web, parts.path.rpartition("/")[0] + f"/{LINK}")
    try:
        websocket.relay(link, lambda: os.read(0, websocket.BLOCK), _write)
    except OSError as problem:
        raise Failure(UNREACHABLE, tr("the connection was lost: {problem}", problem=problem))
    finally:
        link.close()
    if link.reason:
        raise Failure(REFUSED, link.reason)


def _write(data: bytes, _kind: int) -> None:
    while data:
        data = data[os.write(1, data) :]


def proxy_command(arguments) -> str:
    """Return the ProxyCommand: this program, found wherever ssh is started. `%` has a meaning for ssh."""
    words = [sys.executable, os.path.abspath(sys.argv[0]), *arguments, "ssh", "--stdio"]
    line = subprocess.list2cmdline(words) if os.name == "nt" else " ".join(map(shlex.quote, words))
    return line.replace("%", "%%") + " %n"


def set_up(options: argparse.Namespace) -> dict:
    """Add the hosts `*.mlp` to the user's configuration of ssh, in place of what was added before. Raises Failure."""
    path = Path.home() / ".ssh" / "config"
    profile = ("--profile", options.profile) if options.profile else ()
    lines = [BEGIN, f"Host *{DOMAIN}", f"  ProxyCommand {proxy_command(profile)}"]
    lines.append(f"  User {options.where.user or 'me'}")
    lines += [f"  {name} {value}" for name, value in OPTIONS.items()]
    block = "\n".join([*lines, END, ""])
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        head, found, tail = before.partition(BEGIN)
        rest = head + tail.partition(END + "\n")[2] if found else before
        path.parent.mkdir(mode=0o700, exist_ok=True)
        place = path.resolve()  # some keep it elsewhere, and a link to it here
        draft = place.with_name(f".{place.name}.mlp")
        draft.write_text(f"{block}\n{rest.lstrip()}" if rest.strip() else block, encoding="utf-8")
        draft.chmod(place.stat().st_mode & 0o777 if place.exists() else 0o600)
        draft.replace(place)
    except (OSError, ValueError) as problem:
        raise Failure(LOCAL, tr("{file} cannot be written: {problem}", file=path, problem=problem))
    options.show = lambda row: print(tr("{file}: ssh WORKSPACE.mlp works now", file=row["file"]))
    return {"file": str(path), "host": f"*{DOMAIN}"}
