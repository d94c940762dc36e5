"""Ctrl-C while something of the platform is followed: it is cancelled, or goes on without its reader."""

from __future__ import annotations

import argparse
import sys

from .connection import Rest
from .texts import tr


class Followed:
    """What is followed: how it is cancelled, and what is said of that and of leaving it."""

    def __init__(self, cancel: str, question: str, cancelling: str, leaving: str):
        self.cancel, self.question, self.cancelling, self.leaving = cancel, question, cancelling, leaving


def options_of(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--on-interrupt",
        choices=("ask", "cancel", "detach"),
        help=tr("what Ctrl-C or SIGTERM does to it on the platform (default: ask on a terminal, else cancel)"),
    )


def stay(rest: Rest, followed: Followed, options: argparse.Namespace, say, default: str = "cancel") -> bool:
    """Cancel it or leave it, as the user chooses; return whether it is followed further. `default` is what is done
    where nobody can be asked.
    """
    choice = options.on_interrupt or ("ask" if sys.stdin.isatty() and sys.stderr.isatty() else default)
    if choice == "ask":
        try:
            sys.stderr.write("\n" + followed.question)
            sys.stderr.flush()
            typed = sys.stdin.readline()
        except KeyboardInterrupt:
            typed = "d"
        letter = typed.strip().lower()[:1] if typed else "d"
        if letter not in ("c", "d"):
            return True
        choice = "cancel" if letter == "c" else "detach"
    rest.web.close()
    if choice == "cancel":
        rest.send("PUT", followed.cancel, expect=(403,))  # 403: it has ended meanwhile
        say(followed.cancelling)
    else:
        say(followed.leaving)
    return False
