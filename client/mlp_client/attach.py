"""`attach`: a shell or another program in a running job, with the job's own files, environment, GPU and limits."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from urllib.parse import quote

from . import websocket
from .connection import Rest
from .texts import tr
from .transfer.errors import REFUSED, UNREACHABLE, Failure

try:
    import termios
    import tty
except ImportError:  # Windows
    termios = tty = None

OUTPUT, ERRORS = 1, 2
EOF = json.dumps({"eof": True})
KIND = "xterm"  # of a terminal that does not say which it is
ROWS, COLUMNS = 24, 80  # of one without a size


def declare(command) -> None:
    """Add the verb."""
    parser = command("attach", attach, tr("open a shell in a running job; after -- a command to run in its place"))
    parser.add_argument("name", metavar="JOB")
    parser.add_argument("--worker", type=int, default=0, metavar="N", help=tr("in which worker (default: 0)"))
    parser.add_argument(
        "-T", "--no-terminal", action="store_true", help=tr("give the command pipes, as where the input is no terminal")
    )
    parser.set_defaults(takes_args=True)


def attach(rest: Rest, options: argparse.Namespace, say):
    """Run the program to its end; ends with its exit code. Raises Failure, Trouble, BrokenPipeError."""
    has_terminal = termios is not None and sys.stdin.isatty() and sys.stdout.isatty() and not options.no_terminal
    if not has_terminal and not options.args:
        raise Failure(REFUSED, tr("a shell needs a terminal; give a command after --"))
    program = {"command": list(options.args), "worker": options.worker}
    if has_terminal:
        program.update(terminal=os.environ.get("TERM") or KIND, **_size())
    link = websocket.connect(rest.web, rest.path(f"jobs/{quote(options.name, safe='')}/attach"))
    session = _Session(link, _size() if has_terminal else None)
    try:
        with _raw() if has_terminal else contextlib.nullcontext():
            link.send(json.dumps(program).encode(), websocket.TEXT)
            each = session.follow_size if has_terminal else None
            websocket.relay(link, lambda: os.read(0, websocket.BLOCK), session.take, stay=EOF, each=each)
    except OSError as problem:
        raise Failure(UNREACHABLE, tr("the connection was lost: {problem}", problem=problem))
    except KeyboardInterrupt:  # without a terminal; the program is hung up
        options.code = 130
        return None
    finally:
        link.close()
    if not session.is_read:
        raise BrokenPipeError
    if session.code is None:
        raise Failure(REFUSED, link.reason or tr("the connection was lost: {problem}", problem=link.code))
    options.code = session.code
    return None


class _Session:
    """What arrives of the program, and the size of the terminal that it knows."""

    def __init__(self, link: websocket.Link, size):
        self.link, self.size, self.code = link, size, None
        self.is_read = True

    def take(self, data: bytes, kind: int) -> None:
        """Write output where it belongs, and keep the exit code."""
        if kind == websocket.TEXT:
            self.code = json.loads(data.decode()).get("exit_code", self.code)
            return
        target, rest = (2 if data[0] == ERRORS else 1), data[1:]
        try:
            while rest:
                rest = rest[os.write(target, rest) :]
        except BrokenPipeError:  # who has read the output, as `head`, reads no more
            self.is_read = False
            self.link.ended = True

    def follow_size(self) -> None:
        """Tell the program when the terminal has another size now."""
        size = _size()
        if size != self.size:
            self.size = size
            self.link.send(json.dumps({"resize": [size["rows"], size["columns"]]}).encode(), websocket.TEXT)


def _size() -> dict:
    """Return that of the terminal itself: LINES and COLUMNS of the environment may be those of another time."""
    columns, rows = os.get_terminal_size(1)
    return {"rows": rows or ROWS, "columns": columns or COLUMNS}


@contextlib.contextmanager
def _raw():
    """Send each key as it is typed, Ctrl-C, too, while the context lasts."""
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)  # what is typed already is not lost
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
