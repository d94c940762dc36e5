"""The arguments of a script as names and values: `--lr 0.1`, `--lr=0.1`, `-e 5`, `lr=0.1` and flags.

How a script interprets its arguments is unknown; these are the forms that argparse, click, fire and Hydra share.
Further numbers after a number belong to the same argument: `--layers 64 128` is a list, `--verbose data.csv` a value.
The name is as written, without the leading dashes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

MAX_NAME = 250  # characters
MAX_TEXT = 6000
FLAG = "true"  # the value of an option without one

_OPTION = re.compile(r"--?([A-Za-z_][^\s=]*)(?:=(.*))?", re.DOTALL)
_PAIR = re.compile(r"\+{0,2}([A-Za-z_][\w.\-/@]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def parsed(args: Iterable[str]) -> dict[str, str]:
    """Return the values of a script's arguments by name. If a name is given several times, the last value is used."""
    values: dict[str, str] = {}
    waiting = last = ""  # the option that has no value yet; the one that a further number belongs to
    for arg in args:
        if arg == "--":
            break
        option = _OPTION.fullmatch(arg)
        pair = option or _PAIR.fullmatch(arg)
        if pair is not None:
            name, value = pair.groups()
            values[name] = FLAG if value is None else value
            waiting, last = (name, "") if option and value is None else ("", "")
        elif waiting:
            values[waiting] = arg
            waiting, last = "", waiting if is_number(arg) else ""
        elif last and is_number(arg):
            values[last] += " " + arg
        else:
            last = ""
    return {_clean(name): _clean(value)[:MAX_TEXT] for name, value in values.items() if len(name) <= MAX_NAME}


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def number(text: str) -> float | None:
    """Return the finite number of a text; None if it is not one."""
    value = float(text) if is_number(text) else math.inf
    return value if math.isfinite(value) else None


def _clean(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)
